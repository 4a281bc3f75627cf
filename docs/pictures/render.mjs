// Renders pictures with D2: `node render.mjs picture.d2 ...` writes picture.svg beside each. `make pictures` runs it.
//
// The colours follow those of the reader, light or dark, and the background is transparent. The first line of each picture
// names the digest of its source, so that a test finds one that was not rendered again.

import { D2 } from '@terrastruct/d2';
import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';

const LOOK = { themeID: 0, darkThemeID: 200, pad: 8, scale: 1, noXMLTag: true };

const d2 = new D2();
for (const file of process.argv.slice(2)) {
  const source = readFileSync(file, 'utf8');
  const { diagram, renderOptions } = await d2.compile(source, { layout: 'dagre' });
  const svg = await d2.render(diagram, { ...renderOptions, ...LOOK });
  const digest = createHash('sha256').update(source).digest('hex');
  writeFileSync(file.replace(/\.d2$/, '.svg'), `<!-- made from the source with the SHA-256 ${digest} -->\n${svg}\n`);
}
process.exit(0); // D2's worker would keep the process
