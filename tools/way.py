"""The way of a value through the functions: for tools/figures.py.

A *place* is a function that is given the value, alone or in a struct, and uses it or gives it on. A *room* is a file
with places. A file is higher up than those that it calls; a *climb* is a step from one place to the next, in the order of the
calls, into a file higher up; a *return* is one into a file that was left before. A place is entered once.
"""

import re

from measure_source import call_graph, split_commas

CALL = re.compile(r"\b([A-Za-z_]\w*)\s*\(")
STRUCT = re.compile(r"\btypedef struct (\w+)\s*\{(.*?)^\}\s*\1;", re.S | re.M)
INITIALIZED = re.compile(r"\b(\w+)\s+(\w+)\s*=\s*\{([^{}]*)\}\s*;")


def closing(text, start):
    """Returns the position of the parenthesis that closes the one at start."""
    depth = 0
    for end in range(start, len(text)):
        depth += (text[end] == "(") - (text[end] == ")")
        if depth == 0:
            return end
    return len(text)


def name_of(parameter):
    """Returns the name of a parameter."""
    names = re.findall(r"\w+", re.sub(r"\[.*?\]", "", parameter))
    return names[-1] if names else ""


class Way:
    """Follows a value. A taint of a function is (name, field): the parameter or variable, or a field of what it is."""

    def __init__(self, all_sources):
        self.known, self.own, self.fields = {}, {}, {}
        for s in all_sources:
            for match in STRUCT.finditer(s.plain):
                self.fields[match.group(1)] = [name_of(part) for part in match.group(2).split(";")]
            for f in s.functions:
                self.own[s.path, f.name] = (s.path, f)
                if not f.static or s.path.endswith(".h"):
                    self.known[f.name] = (s.path, f)
        graph = call_graph(all_sources)
        self.floors = {}
        for path in graph:
            self._floor(path, graph)
        self.places, self.memo = [], {}

    def _floor(self, path, graph):
        """Sets and returns the floor of a file: one above the highest file that it calls."""
        if path not in self.floors:
            self.floors[path] = 0
            self.floors[path] = 1 + max((self._floor(p, graph) for p in graph.get(path, ())), default=0)
        return self.floors[path]

    def _calls(self, path, body):
        """Yields (path, function, arguments) of each call of one of our functions, in the order of the text."""
        for match in CALL.finditer(body):
            target = self.own.get((path, match.group(1))) or self.known.get(match.group(1))
            if target:
                yield *target, [a.strip() for a in split_commas(body[match.end():closing(body, match.end() - 1)])]

    def _all(self, path, function, taints):
        """Returns the taints of a function's parameters and variables, those that the functions it calls set included."""
        key = (path, function.name, frozenset(taints))
        if key in self.memo:
            return self.memo[key]
        self.memo[key] = taints = set(taints)
        before = None
        while before != taints:
            before = set(taints)
            taints |= self._spread(function.body, taints)
            for target_path, target, arguments in self._calls(path, function.body):
                passed = self._passed(target, arguments, taints)
                if not passed:
                    continue
                below = self._all(target_path, target, passed)
                for argument, parameter in zip(arguments, target.parameters):
                    match = re.fullmatch(r"&?(\w+)", argument)
                    if match:
                        taints |= {(match.group(1), field) for name, field in below if field and name == name_of(parameter)}
        return taints

    def _passed(self, target, arguments, taints):
        """Returns the taints of the parameters of a function that is called with these arguments."""
        return {(name_of(parameter), field) for argument, parameter in zip(arguments, target.parameters)
                for field in self._carried(argument, taints)}

    def _spread(self, body, taints):
        """Returns the taints, with those of the variables that the value is assigned to."""
        taints = set(taints)
        # what a function returns is another value
        plain = body
        for match in reversed(list(CALL.finditer(body))):
            if match.group(1) not in ("if", "while", "for", "switch", "return", "likely", "unlikely"):
                plain = plain[:match.end()] + plain[closing(plain, match.end() - 1):]
        before = None
        while before != taints:
            before = set(taints)
            for match in INITIALIZED.finditer(body):
                for i, part in enumerate(split_commas(match.group(3))):
                    for field in self._carried(part.split("=")[-1].strip(), before):
                        named = re.match(r"\s*\.(\w+)", part)
                        fields = self.fields.get(match.group(1), [])
                        taints.add((match.group(2), named.group(1) if named else fields[i] if i < len(fields) else field))
            for name, field in before:
                value = re.escape(name) + (r"\s*(?:->|\.)\s*" + field if field else "")
                for match in re.finditer(r"\b(\w+)(?:\s*(?:->|\.)\s*(\w+))?\s*=(?!=)\s*[^;={}]*(?<![\w.>])" + value +
                                         r"\b(?!\s*(?:->|\.|\())", plain):
                    taints.add((match.group(1), match.group(2) or ""))
                if field:       # the whole struct is assigned or copied
                    for match in re.finditer(r"\b(\w+)\s*=\s*[*&]?" + re.escape(name) + r"\s*;", plain):
                        taints.add((match.group(1), field))
        return taints

    def follow(self, path, function, taints, seen):
        """Returns whether the function with these taints of its parameters is a place; notes it and those below."""
        key = (path, function.name)
        if key in seen:
            return seen[key]
        seen[key] = True
        mark = len(self.places)
        self.places.append((path, function.name))
        used = any(re.search(r"\b" + re.escape(n) + (r"\s*(?:->|\.)\s*" + f if f else "") + r"\b", function.body)
                   for n, f in taints)
        taints = self._all(path, function, taints)
        for target_path, target, arguments in self._calls(path, function.body):
            passed = self._passed(target, arguments, taints)
            if passed:
                used |= self.follow(target_path, target, passed, seen)
        if not used:
            del self.places[mark:]
            seen[key] = False
        return used

    @staticmethod
    def _carried(argument, taints):
        """Yields the fields of the parameter, or "" for itself, that an argument gives the value to."""
        for name, field in taints:
            if field and re.fullmatch(r"[&*]?" + re.escape(name), argument):
                yield field
            elif re.fullmatch(re.escape(name) + (r"\s*(?:->|\.)\s*" + field if field else ""), argument):
                yield ""


def way_of(all_sources, name, parameter):
    """Returns (places, rooms, climbs, returns) of a parameter's value; places are (file, function), in their order."""
    way = Way(all_sources)
    way.follow(*way.own[next(k for k in way.own if k[1] == name)], {(parameter, "")}, {})
    rooms = [path for path, _ in way.places]
    steps = [(a, b) for a, b in zip(rooms, rooms[1:]) if a != b]
    climbs = sum(1 for a, b in steps if way.floors.get(b, 0) > way.floors.get(a, 0))
    left, returns = set(), 0
    for a, b in steps:
        left.add(a)
        returns += b in left
    return way.places, sorted(set(rooms)), climbs, returns
