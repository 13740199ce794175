"""A parser of the C source, for tools/check_source.py and tools/figures.py.

It relies on the layout that pgindent gives: the name of a function and its braces are
in the first column.
"""

import os
import re
import sys

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

COMMENT_WIDTH = 80
CODE_WIDTH = 100
MARKDOWN_WIDTH = 120
MANY_PARAMETERS = 8

TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def blank(text):
    """Returns C source with comments and literals blanked; no character moves."""
    return TOKEN.sub(lambda m: re.sub(r"[^\n\t]", " ", m.group(0)), text)


def blank_directives(code):
    """Returns the result of blank() with the lines of the preprocessor blanked as well."""
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: re.sub(r"[^\n]", " ", m.group(0)), code, flags=re.M)


def split_commas(text):
    """Returns the parts of the text between those commas that are not in parentheses."""
    depth, part, parts = 0, "", []
    for c in text:
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += c
    return parts + [part] if (part.strip() or parts) else []


class Function:
    """The definition of a function.

    first, open_line and close_line are the lines where it begins and of its braces, counted from 1.
    """

    def __init__(self, name, static, parameters, first, open_line, close_line, body, commented):
        self.name, self.static, self.parameters = name, static, parameters
        self.first, self.open_line, self.close_line = first, open_line, close_line
        self.body, self.commented = body, commented

    @property
    def length(self):
        return self.close_line - self.open_line


class Source:
    """A .c or .h file."""

    def __init__(self, path):
        self.path = path
        with open(os.path.join(TOP, path), encoding="utf-8") as source:
            self.text = source.read()
        self.lines = self.text.splitlines()
        self.code = blank(self.text)                # comments and literals blanked
        self.plain = blank_directives(self.code)    # directives as well
        self.functions = list(self._functions())

    def _functions(self):
        """Yields the functions of the file."""
        lines = self.plain.splitlines()
        open_line = None
        for number, line in enumerate(lines, 1):
            if line.startswith("{"):
                open_line = number
            elif line.startswith("}") and open_line is not None:
                function = self._function(lines, open_line, number)
                if function:
                    yield function
                open_line = None

    def _function(self, lines, open_line, close_line):
        """Returns the function whose body these lines enclose, or None if they enclose something else."""
        first = open_line
        while first > 1 and lines[first - 2].strip() and not re.search(r"[;}]\s*$", lines[first - 2]):
            first -= 1
        header = "\n".join(lines[first - 1:open_line - 1])
        match = re.search(r"^(?!pg_attribute|static\b)([A-Za-z_]\w*)\s*\(", header, re.M) or \
            re.search(r"\b(?!pg_attribute)([A-Za-z_]\w*)\s*\(", header)
        if not match or re.match(r"\s*(struct|union|enum|typedef)\b", header):
            return None
        depth, end = 0, match.end() - 1
        for end in range(match.end() - 1, len(header)):
            depth += (header[end] == "(") - (header[end] == ")")
            if depth == 0:
                break
        parameters = [p for p in split_commas(header[match.end():end]) if p.strip() not in ("", "void")]
        body = "\n".join(lines[open_line - 1:close_line])
        before = self.lines[first - 2].rstrip() if first > 1 else ""
        return Function(match.group(1), bool(re.search(r"\bstatic\b", header)), parameters, first, open_line,
                        close_line, body, before.endswith("*/"))

    def macros(self):
        """Yields (name, text) of each macro."""
        for match in re.finditer(r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:[^\n]*\\\n)*[^\n]*)", self.code, re.M):
            yield match.group(1), match.group(2)

    def statics(self):
        """Yields (line, name) of each static variable that is not constant, in functions and outside."""
        body_lines = set()
        for f in self.functions:
            body_lines.update(range(f.open_line, f.close_line + 1))
        for match in re.finditer(r"^[ \t]*static\b(?![ \t]+inline\b)", self.plain, re.M):
            depth, end = 0, match.end()
            while end < len(self.plain):
                c = self.plain[end]
                depth += (c in "{") - (c in "}")
                if depth == 0 and c in ";=":
                    break
                if c == "{" and re.search(r"\)\s*$", self.plain[match.end():end]):
                    break               # a function
                end += 1
            declaration = re.sub(r"\{.*\}", " ", self.plain[match.end():end], flags=re.S)
            if self.plain[end] == "{":
                continue
            pointer = re.search(r"\(\s*\*\s*(\w+)", declaration)
            if "(" in re.sub(r"\bpg_attribute\w+(\s*\(.*?\))?|\[.*?\]", "", declaration) and not pointer:
                continue                # the declaration of a function
            if re.search(r"\bconst\b[^*]*$", declaration):
                continue
            for part in split_commas(declaration):
                names = re.findall(r"\w+", re.sub(r"\[.*?\]", "", part, flags=re.S))
                if names:
                    yield line_of(self.plain, match.start() + len(match.group(0))), \
                        pointer.group(1) if pointer else names[-1]

    def wide(self):
        """Yields (line, kind, width) of each line that is too wide; kind is 'comment' or 'code'."""
        for number, (line, code) in enumerate(zip(self.lines, self.code.splitlines()), 1):
            width = len(line.expandtabs(4))
            kind = "code" if blank(line).strip() and code.strip() else "comment"
            if '"' in line and line.strip() and not code.strip():
                kind = "code" if re.match(r'\s*[")]', line) else kind
            if width > (CODE_WIDTH if kind == "code" else COMMENT_WIDTH):
                yield number, kind, width


def line_of(text, position):
    """Returns the number of the line of a position, counted from 1."""
    return text.count("\n", 0, position) + 1


def tracked(*endings):
    """Returns the paths of all files with these endings but those of test/, sorted."""
    out = []
    for folder, subfolders, names in os.walk(TOP):
        subfolders[:] = [s for s in subfolders if not s.startswith(".") and s not in ("test", "results", "tmp_check", "__pycache__")]
        out += [os.path.relpath(os.path.join(folder, n), TOP) for n in names if n.endswith(endings)]
    return sorted(out)


def sources():
    """Returns a Source for each C file but those of test/."""
    return [Source(path) for path in tracked(".c", ".h")]


def call_graph(all_sources):
    """Returns {file: {called file: names of the called functions}} for the .c files.

    The calls in macros and in functions of headers count as calls of the file that uses these.
    """
    home, text_of = {}, {}
    for s in all_sources:
        for name, text in s.macros():
            if s.path.endswith(".h"):
                text_of[name] = text
        for f in s.functions:
            if s.path.endswith(".h"):
                text_of[f.name] = f.body
            elif not f.static:
                home[f.name] = s.path
    call = re.compile(r"\b([A-Za-z_]\w*)\s*\(")
    graph = {}
    for s in all_sources:
        if not s.path.endswith(".c"):
            continue
        seen, todo = set(), [s.plain] + [text for _, text in s.macros()]
        own = {f.name for f in s.functions if f.static}
        edges = graph.setdefault(s.path, {})
        while todo:
            for name in call.findall(todo.pop()):
                if name in seen or name in own:
                    continue
                seen.add(name)
                if name in home and home[name] != s.path:
                    edges.setdefault(home[name], set()).add(name)
                elif name in text_of:
                    todo.append(text_of[name])
    return graph


def circles(graph):
    """Returns the strongly connected components of two and more files (Tarjan's algorithm)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        """Adds the circles that are reached from node to found (Tarjan)."""
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph[node]:
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            members = stack[stack.index(node):]
            del stack[stack.index(node):]
            if len(members) > 1:
                found.append(sorted(members))

    sys.setrecursionlimit(10000)
    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def server_callbacks(all_sources):
    """Returns the names of the functions that are assigned to hooks and members of structs.

    The server determines their parameters.
    """
    names = set()
    for s in all_sources:
        names.update(re.findall(r"^\s*\.\w+\s*=\s*(\w+)\s*,?\s*$", s.plain, re.M))
        names.update(re.findall(r"\b\w+_hook\s*=\s*(\w+)\s*;", s.plain))
        names.update(re.findall(r"\b\w+(?:->|\.)\w+\s*=\s*(\w+)\s*;", s.plain))
    return names


def many_parameters(all_sources):
    """Returns (source, function) for each function but the server's callbacks with MANY_PARAMETERS or more."""
    callbacks = server_callbacks(all_sources)
    return [(s, f) for s in all_sources for f in s.functions
            if len(f.parameters) >= MANY_PARAMETERS and f.name not in callbacks]
