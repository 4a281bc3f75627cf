"""The modules of a project, which are imported afresh when their files have changed; all others stay as they are."""

# A reload takes the modules of the project out of `sys.modules`, so that importing the file imports them all again. If that
# fails, they are put back: functions of the old code that import late find the old modules, as if nothing had happened.
#
# Which source a module was made of is noted by its loader, at the moment when it reads the file. So a file that is saved while it
# is imported, or right after, is found to have changed, however many notifications of the system were lost or came together.
# Bytecode is neither read nor written: its file names the second in which the source was saved, and two versions of one second
# that have the same length would be taken for one.
#
# A function of the project that runs in a thread may import at any time. So what its loader writes is copied, in one step of the
# interpreter, before it is looked through, and never replaced by another object.

from __future__ import annotations

import hashlib
import importlib
import linecache
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final, NamedTuple

from ...base.regular_files import read_regular
from ..targets.loading import OwnFiles

MAX_SOURCE: Final = 64 * 1024 * 1024
"""Bytes of a file that are compared; no source has as many."""
OUR_PACKAGES: Final = ("trio_mcp", "trio_mcp_transports")


class Stamp(NamedTuple):
    """What the system says of a version of a file."""

    modified: int
    size: int
    inode: int


class Source(NamedTuple):
    """The version of a file that a module was made of."""

    stamp: Stamp | None
    digest: bytes | None


class Saved(NamedTuple):
    """Modules that were taken out of `sys.modules`, and where else they were found."""

    modules: Mapping[str, ModuleType]
    attributes: Sequence[tuple[ModuleType, str, object]]
    path: Sequence[str]


class NotedLoader(SourceFileLoader):
    """Loads a module from its source, and notes which version of the file that was."""

    def __init__(self, name: str, path: str, note: Callable[[str, Path, Source], None]) -> None:
        super().__init__(name, path)
        self._note = note

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the code of the source as it is now."""
        named = Path(self.path).absolute()
        # A link may be made to lead to another file, while this one stays as it is.
        paths = [named.resolve(), *([named] if named.is_symlink() else [])]
        # Before the file is read, so that a version that is saved meanwhile differs from it.
        stamp = stamp_of(named)
        for path in paths:
            self._note(fullname, path, Source(stamp, None))
        source = self.get_data(self.path)
        for path in paths:
            self._note(fullname, path, Source(stamp, hashlib.sha256(source).digest()))
        code: CodeType = self.source_to_code(source, self.path)
        return code


class ProjectModules:
    """The modules whose files are in the folders of a project, apart from what is installed there.

    Args:
        roots: the folders.

    Attributes:
        files: the version of each file that is in use, or that was read in the last attempt to load.
    """

    def __init__(self, roots: Sequence[Path]) -> None:
        self.own_files = OwnFiles(roots)
        self._before = frozenset(sys.modules)
        self._names: set[str] = set()
        self._read: set[Path] = set()
        """What has been read since the last attempt began."""
        self.files: dict[Path, Source] = {}

    # as a finder of modules

    def install(self) -> None:
        """Load the modules of the project by `loader` from now on."""
        sys.meta_path.insert(0, self)

    def uninstall(self) -> None:
        """Leave importing as it was before `install`."""
        sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how to load a module of the project; None for every other."""
        if fullname.partition(".")[0] in OUR_PACKAGES:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                break
        else:
            return None
        # A loader of another class does something else with the source, as that of pytest does.
        if type(spec.loader) is not SourceFileLoader or spec.origin is None or not self.owns(Path(spec.origin)):
            return None
        spec.loader = self.loader(fullname, spec.origin)
        return spec

    def loader(self, name: str, path: str) -> NotedLoader:
        """Return what loads a module of the project."""
        return NotedLoader(name, path, self._note)

    def _note(self, name: str, path: Path, source: Source) -> None:
        self._names.add(name)
        self._read.add(path)
        self.files[path] = source

    def owns(self, path: Path) -> bool:
        """Return whether a file is one of the project's own."""
        return self.own_files.owns(path)

    # reloading

    def take_out(self) -> Saved:
        """Remove the modules of the project from `sys.modules`, so that an import imports them again."""
        loaded = {**sys.modules}
        modules = {name: loaded[name] for name in [*self._names] if name in loaded}
        modules |= {name: each for name, each in loaded.items() if self._is_namespace(name, each)}
        attributes = [*self._attributes(modules)]
        for name in modules:
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        self._read.clear()
        # Of what the attempt does not read, it is known that it was so when the attempt began.
        for path in [*self.files]:
            self.files[path] = source_of(path)
        return Saved(modules, attributes, [*sys.path])

    def put_back(self, saved: Saved) -> None:
        """Undo `take_out`, and what was imported since then."""
        for name in [*self._names]:
            if name not in saved.modules:
                sys.modules.pop(name, None)
        sys.modules.update(saved.modules)
        for parent, name, value in saved.attributes:
            setattr(parent, name, value)
        sys.path[:] = saved.path

    def settle(self) -> None:
        """Take a file that was written again with the same text, while it was imported, for the one that was read."""
        # A module that writes another one, each time it is imported, would be reloaded again and again.
        for path, source in [*self.files.items()]:
            stamp = stamp_of(path)
            if stamp not in (None, source.stamp) and digest_of(path) == source.digest:
                self.files[path] = Source(stamp, source.digest)

    def forget_unread(self) -> None:
        """Forget the files that the last attempt has not read, which has succeeded: the code is not made of them any more."""
        for path in [*self.files]:
            if path not in self._read:
                del self.files[path]

    def _is_namespace(self, name: str, module: ModuleType) -> bool:
        """Return whether a module is a package of the project without an `__init__.py`."""
        if name in self._before or getattr(module, "__file__", None) is not None:
            return False
        folders = [*getattr(module, "__path__", ())]
        return bool(folders) and all(self.owns(Path(folder)) for folder in folders)

    def _attributes(self, modules: Mapping[str, ModuleType]) -> Iterator[tuple[ModuleType, str, object]]:
        """Yield the attributes of packages that stay, under which modules are found that are taken out."""
        for name, module in modules.items():
            package, _, attribute = name.rpartition(".")
            parent = sys.modules.get(package)
            if parent is not None and package not in modules and getattr(parent, attribute, None) is module:
                yield parent, attribute, module

    # what has changed

    def changed(self, touched: Iterable[Path] = ()) -> list[Path]:
        """Return the files that are not as they were read.

        Args:
            touched: files of which the system said that they have changed, whose content is compared, too: of two versions that
                are saved within the resolution of the clock the system says the same.
        """
        named = set(touched)
        return [
            path
            for path, source in [*self.files.items()]
            if stamp_of(path) != source.stamp or (path in named and digest_of(path) != source.digest)
        ]

    def folders(self) -> set[Path]:
        """Return the folders that the files are in."""
        return {path.parent for path in [*self.files]}

    def extensions(self) -> dict[str, Path]:
        """Return the C extensions of the project that are loaded, by name; they cannot be loaded again."""
        found: dict[str, Path] = {}
        for name, module in {**sys.modules}.items():
            file = getattr(module, "__file__", None)
            if isinstance(file, str) and file.endswith(tuple(EXTENSION_SUFFIXES)) and self.owns(Path(file)):
                found[name] = Path(file).resolve()
        return found


def stamp_of(path: Path) -> Stamp | None:
    """Return what the system says of a file; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return Stamp(status.st_mtime_ns, status.st_size, status.st_ino)


def digest_of(path: Path) -> bytes | None:
    """Return a digest of what a file holds; None if it cannot be read."""
    try:
        return hashlib.sha256(read_regular(path, MAX_SOURCE)).digest()
    except OSError:
        return None


def source_of(path: Path) -> Source:
    """Return the version of a file that there is now."""
    stamp = stamp_of(path)
    return Source(stamp, digest_of(path))


def forget_lines() -> None:
    """Let tracebacks show the lines of the files as they are now."""
    linecache.checkcache()
