// A client with nothing but the WebSocket of browsers: the URL, the subprotocol, and JSON in text frames.
const [url, protocol] = process.argv.slice(2);
const socket = new WebSocket(url, protocol);
const say = (message) => socket.send(JSON.stringify({jsonrpc: "2.0", ...message}));
const heard = [];

socket.onopen = () => {
  const clientInfo = {name: "browser", version: "1"};
  say({id: 1, method: "initialize", params: {protocolVersion: "2025-11-25", capabilities: {elicitation: {}}, clientInfo}});
};
socket.onmessage = ({data}) => {
  const message = JSON.parse(data);
  heard.push(message.method ?? message.id);
  if (message.id === 1 && message.result) {
    say({method: "notifications/initialized"});
    say({id: 2, method: "tools/call", params: {name: "ask", arguments: {}}});
  } else if (message.method === "elicitation/create") {
    say({id: message.id, result: {action: "accept", content: {value: "é".repeat(70000)}}});
  } else if (message.id === 2) {
    heard.push(message.result.content[0].text.length);
    socket.close(1000);
  }
};
const told = {heard, opened: false, code: 0, wasClean: false, protocol: ""};
socket.addEventListener("open", () => Object.assign(told, {opened: true, protocol: socket.protocol}));
socket.onclose = ({code, wasClean}) => Object.assign(told, {code, wasClean});
socket.onerror = () => {};
process.on("exit", () => console.log(JSON.stringify(told)));
