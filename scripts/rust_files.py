"""Circles of imports between the files of a Rust crate: which file names another by a path of `use`, `crate::`,
`super::` or `self::`. A name that a file only hands on (`pub use`) counts as an import of the file that defines it, by
the file that uses it. Tests are left out."""

import re

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
USE = re.compile(r"(pub(?:\([a-z: ]+\))?\s+)?\buse\s+([^;]*);")
PATH = re.compile(r"\b(?:crate|super|self)(?:::\w+)+")


def code_of(text):
    """The text without comments, strings and the tests at its end."""
    text = STRING.sub('""', COMMENT.sub("", text))
    return text.split("#[cfg(test)]\nmod tests", 1)[0]


def paths_in(tree, before=()):
    """The paths of a `use` declaration, as lists of names: {a::{b, c}} is [a, b] and [a, c]."""
    tree = tree.strip()
    if tree.startswith("{"):
        depth, start = 0, 1
        for at, char in enumerate(tree):
            depth += {"{": 1, "}": -1}.get(char, 0)
            if (char == "," and depth == 1) or depth == 0:
                yield from paths_in(tree[start:at], before)
                start = at + 1
        return
    name, colons, rest = tree.partition("::")
    if colons:
        yield from paths_in(rest, (*before, name.strip()))
    elif tree:
        yield [*before, tree.split()[0]]


class Crate:
    """The files of a crate by their module paths, and what each imports."""

    def __init__(self, source):
        self.files = {}
        for file in sorted(source.rglob("*.rs")):
            module = file.relative_to(source).with_suffix("").parts
            if "tests" not in module:
                self.files[() if module in (("lib",), ("main",)) else module] = file
        self.handed_on = {module: {} for module in self.files}
        named = {}
        for module, file in self.files.items():
            code = code_of(file.read_text(encoding="utf-8"))
            named[module] = [match[0].split("::") for match in PATH.finditer(USE.sub("", code))]
            for hands_on, tree in USE.findall(code):
                for path in paths_in(tree):
                    if hands_on:
                        self.handed_on[module][path[-1]] = path
                    else:
                        named[module].append(path)
        self.imports = {
            module: {file for path in paths if (file := self.file_of(module, path)) not in (None, module)}
            for module, paths in named.items()
        }

    def file_of(self, module, path, hops=5):
        """The file that defines what `path` names in `module`. None: another crate's."""
        head, rest = path[0], path[1:]
        if head == "crate":
            at = ()
        elif head == "self":
            at = module
        elif head == "super":
            at = module[:-1]
            while rest and rest[0] == "super":
                at, rest = at[:-1], rest[1:]
        elif (*module, head) in self.files:
            at, rest = module, path
        else:
            return None
        while rest and (*at, rest[0]) in self.files:
            at, rest = (*at, rest[0]), rest[1:]
        if rest and hops and rest[0] in self.handed_on.get(at, {}):
            return self.file_of(at, self.handed_on[at][rest[0]] + rest[1:], hops - 1)
        return at if at in self.files else None

    def circles(self):
        """Sets of files each of which reaches the others: Tarjan's algorithm, as reachability, as crates are small."""
        reach = {module: set() for module in self.files}
        for module, reached in reach.items():
            waiting = [module]
            while waiting:
                for file in self.imports[waiting.pop()] - reached:
                    reached.add(file)
                    waiting.append(file)
        found = set()
        for module, reached in reach.items():
            if module in reached:
                found.add(frozenset(other for other in reached if module in reach[other]))
        return [sorted("/".join(module) or "lib" for module in circle) for circle in found]
