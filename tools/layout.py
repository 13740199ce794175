"""The layout of C and markdown files, for ./zundo check and ./zundo check --fix.

C is indented by PostgreSQL's pg_bsd_indent, from Debian's package pg-bsd-indent,
with the options of the server's pgindent. It does not change comments that begin in
the first column; these are filled here, as are the paragraphs of markdown.
"""

import glob
import os
import re
import shutil
import subprocess
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TYPEDEFS = os.path.join(TOP, "tools/typedefs.list")

COMMENT_WIDTH = 79
MARKDOWN_WIDTH = 120

# The options that src/tools/pgindent of the server uses.
OPTIONS = ("-bad -bap -bbb -bc -bl -cli1 -cp33 -cdb -nce -d0 -di12 -nfc1 -i4 -l79 -lp -lpl -nip -npro -sac -tpg "
           "-ts4").split()

# Names that some header of the server gives to a type, and that are used for other
# things here.
NO_TYPEDEFS = set("ANY U abs boolean date digit iterator other output_type pointer reference string symbol timestamp type wrap".split())


def available():
    """Returns whether pg_bsd_indent is installed."""
    return shutil.which("pg_bsd_indent") is not None


# ---- comments ----

def wrap(words, first, rest, width, columns=lambda text: len(text.expandtabs(4))):
    """Returns the words as lines of at most width columns; the first begins with first, the others with rest."""
    lines, line, empty = [], first, True
    for word in words:
        if not empty and columns(line + " " + word) > width:
            lines.append(line)
            line, empty = rest, True
        line += word if empty else " " + word
        empty = False
    return lines + [line.rstrip()]


# The beginning of an item in a comment: after a tab a name and some blanks, or a dash, or a number.
ITEM = re.compile(r"(\t(?:[^\t ]| (?! ))+(?:\t+|  +)|\t[A-Z]+_[A-Z_]+ |[ \t]*(?:-|\d+\.|\*|\([a-z0-9]\)) )(?=\S)")


def wide(line):
    """Returns whether a line of a comment is too wide."""
    return len(line.expandtabs(4)) > COMMENT_WIDTH + 1


def ragged(lines):
    """Returns whether a line of the paragraph is much shorter than it would be if the paragraph were filled."""
    return any(len((a + " " + b.split()[0]).expandtabs(4)) < 56 and not re.search(r"[.:;,]$", a)
               for a, b in zip(lines, lines[1:]) if b.split())


def fill_paragraph(lines):
    """Returns the lines of one paragraph of a comment, without stars, filled if a line is too wide or too short."""
    if not any(wide(" *" + line) for line in lines) and not ragged(lines):
        return lines
    item = ITEM.match(lines[0])
    first = item.group(1) if item else re.match(r"[ \t]*", lines[0]).group(0)
    if len(lines) > 1:
        rest = re.match(r"[ \t]*", lines[1]).group(0)
    elif item:
        rest = "\t" * (len((" *" + first).expandtabs(4)) // 4) if first.startswith("\t") else " " * len(first)
    else:
        rest = first
    words = " ".join([lines[0][len(first):]] + [line.strip() for line in lines[1:]]).split()
    return [line[2:] for line in wrap(words, " *" + first, " *" + rest, COMMENT_WIDTH)]


def is_drawing(line):
    """Returns whether the line is part of a table, a diagram or code, which stay as they are."""
    text = line.strip()
    return bool(re.search(r"\S {2,}\S|\S\t+\S|[|+]--|--[|+]|-{4}|={4}", text)) and not ITEM.match(line)


def fill_body(lines):
    """Returns the lines of a comment's body, without stars, with all paragraphs filled."""
    out, paragraph = [], []

    def flush():
        """Writes the paragraph that was collected, filled unless it is a drawing."""
        if paragraph:
            out.extend(paragraph if any(is_drawing(line) for line in paragraph) else fill_paragraph(paragraph))
            paragraph.clear()

    for line in lines:
        if not line.strip():
            flush()
            out.append("")
        elif paragraph and (starts_item(line, paragraph)):
            flush()
            paragraph.append(line)
        else:
            paragraph.append(line)
    flush()
    return out


def starts_item(line, paragraph):
    """Returns whether the line begins a new paragraph, rather than continuing the one with the given lines."""
    if ITEM.match(line):
        return True
    if ITEM.match(paragraph[0]) and len(paragraph) == 1:
        return not re.match(r"\t\t|  ", line)    # else it continues the item
    return re.match(r"[ \t]*", line).group(0) != re.match(r"[ \t]*", paragraph[-1]).group(0)


def fill_comment(text):
    """Returns a comment that begins in the first column, filled."""
    if re.match(r"/\*\s*-{2,}|/\*[-=*]", text):
        return text
    inner = text[2:-2]
    if "\n" not in text:
        if not wide(text):
            return text
        lines = [" " + inner.strip()]
    else:
        lines = inner.split("\n")
        if not all(re.match(r"\s*\*", line) or not line.strip() for line in lines[1:-1]):
            return text
        last = lines.pop()
        lines = ([" " + lines[0].strip()] if lines[0].strip() else []) + [re.sub(r"^\s*\*", "", line) for line in lines[1:]]
        if last.strip():
            lines.append(re.sub(r"^\s*\*", "", last).rstrip())
    lines = fill_body([line.rstrip() for line in lines])
    return "/*\n" + "".join(" *" + line + "\n" for line in lines) + " */"


def fill_comments(text):
    """Returns C source with all comments that begin in the first column filled."""
    return re.sub(r"^/\*.*?\*/(?=[ \t]*\n)", lambda m: fill_comment(m.group(0)), text, flags=re.M | re.S)


# ---- C ----

def typedef_names(text):
    """Yields the names of the types that a C source defines."""
    text = re.sub(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"', " ", text, flags=re.S)
    for match in re.finditer(r"\btypedef\b", text):
        depth, end = 0, match.end()
        while end < len(text) and (text[end] != ";" or depth):
            depth += (text[end] in "{(") - (text[end] in "})")
            end += 1
        body = re.sub(r"\[[^\]]*\]|\bpg_attribute\w+", "", re.sub(r"\{.*\}", " ", text[match.end():end], flags=re.S))
        function = re.search(r"\(\s*\*?\s*(\w+)\s*\)\s*\(", body)
        if function:
            yield function.group(1)
            continue
        for part in body.split("(")[0].split(","):
            names = re.findall(r"\w+", part)
            if names:
                yield names[-1]


def update_typedefs(paths):
    """Writes tools/typedefs.list: the types that the files define, and those of the servers that they use.

    The servers' types are those that the list already has, and those in the source trees of tools/build-postgres.
    """
    texts = {path: open(os.path.join(TOP, path), encoding="utf-8").read() for path in paths}
    ours = {name for text in texts.values() for name in typedef_names(text)}
    used = set(re.findall(r"\b[A-Za-z_]\w*\b", " ".join(texts.values())))
    theirs = set(read_typedefs()) | {"bool"}
    for path in glob.glob(os.path.expanduser("~/.cache/zundo/pg*/src/src/tools/pgindent/typedefs.list")):
        with open(path, encoding="utf-8") as source:
            theirs.update(source.read().split())
    names = sorted((ours | theirs & used) - NO_TYPEDEFS)
    with open(TYPEDEFS, "w", encoding="utf-8") as out:
        out.write("".join(name + "\n" for name in names))


def read_typedefs():
    """Returns the names in tools/typedefs.list."""
    if not os.path.exists(TYPEDEFS):
        return []
    with open(TYPEDEFS, encoding="utf-8") as names:
        return names.read().split()


def indent(text):
    """Returns the C source as pgindent formats it. Raises ValueError if pg_bsd_indent fails."""
    text = re.sub(r"/\* +---", "/*---X_X", text)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "source.c")
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        done = subprocess.run(["pg_bsd_indent", *OPTIONS, "-U" + TYPEDEFS, path], cwd=folder, capture_output=True, text=True)
        if done.returncode or done.stderr:
            raise ValueError(done.stderr.strip() or f"pg_bsd_indent ends with {done.returncode}")
        with open(path, encoding="utf-8") as source:
            text = source.read()
    text = text.replace("/*---X_X", "/* ---")
    text = re.sub(r"\*/(/\*.*\*/)$", r"*/\t\1", text, flags=re.M)
    return re.sub(r"^([A-Za-z_]\S*)[ \t]+\*$", r"\1 *", text, flags=re.M)


def formatted_c(text):
    """Returns the C source laid out, with wide lines of code as they are."""
    return indent(fill_comments(text)) if available() else fill_comments(text)


# ---- markdown ----

def fill_markdown(text):
    """Returns the text with paragraphs and items filled if a line is too wide; tables and code do not change."""
    out, paragraph, code = [], [], False

    def flush():
        """Writes the paragraph that was collected, filled if one of its lines is too wide."""
        if not paragraph:
            return
        if any(len(line) > MARKDOWN_WIDTH for line in paragraph):
            item = re.match(r"\s*(?:[-*+] |\d+\. )?", paragraph[0]).group(0)
            words = " ".join([paragraph[0][len(item):]] + [line.strip() for line in paragraph[1:]]).split(" ")
            words = [w for w in words if w]
            out.extend(wrap(words, item, " " * len(item), MARKDOWN_WIDTH, len))
        else:
            out.extend(paragraph)
        paragraph.clear()

    for line in text.split("\n"):
        fence = line.lstrip().startswith("```")
        if fence:
            code = not code
        if code or fence or not line.strip() or re.match(r"\s*\||#|\s*<|    ", line) and not (paragraph and line.startswith("  ")):
            flush()
            out.append(line)
        else:
            if re.match(r"\s*([-*+] |\d+\. )", line):
                flush()
            paragraph.append(line)
    flush()
    return "\n".join(out)


# ---- lines of code that are too wide ----

CODE_WIDTH = 100


def break_line(line, blanked):
    """Returns the two parts of a line that is too wide, or None if there is no place to break it.

    Breaks at the last of the outermost places that leave the first part narrow enough. blanked is the line with
    literals and comments masked.
    """
    best = None
    for match in re.finditer(r"[,;] |&& |\|\| |(?= \? )|(?= : )|(?<![=!<>])= | (?=pg_attribute_printf)", blanked):
        start, end = match.start(), match.end()
        if len(line[:end].rstrip().expandtabs(4)) > CODE_WIDTH or not line[end:].strip() or end < len(line) - len(line.lstrip()) + 12:
            continue
        before = blanked[:start]
        depth = sum(before.count(c) for c in "([{") - sum(before.count(c) for c in ")]}")
        text = match.group(0)
        cost = depth + (1.5 if text == "= " else 0.3 if text == "|| " else 0)
        if best is None or cost < best[0] or cost <= best[0] and end > best[1]:
            best = (cost, end)
    # a string is cut at a blank if there is no good place before it
    for match in re.finditer(r'"(?:\\.|[^"\\])*"', line):
        if len(line[:match.end()].expandtabs(4)) > CODE_WIDTH and len(line[:match.start()].expandtabs(4)) < CODE_WIDTH - 30:
            limit = match.start() + CODE_WIDTH - 2 - len(line[:match.start()].expandtabs(4))
            cut = line.rfind(" ", match.start(), limit) + 1
            if cut > match.start() + 20 and (best is None or best[1] < len(line) - len(line.lstrip()) + 25 or
                                             best[1] == match.start() and len(match.group(0)) > 84):
                return line[:cut] + '"', '"' + line[cut:]
    return (line[:best[1]].rstrip(), line[best[1]:].lstrip()) if best else None


def fixed_c(text):
    """Returns the C source laid out, with wide lines of code broken where possible."""
    return formatted_c(break_code(formatted_c(text))) if available() else text


def break_code(text):
    """Returns the C source with wide lines of code broken where possible; it needs to be indented again."""
    for _ in range(4):
        pattern = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*', re.S | re.M)
        blanked = pattern.sub(lambda m: re.sub(r"[^\n\t]", "_", m.group(0)), text).split("\n")
        code = pattern.sub(lambda m: m.group(0) if m.group(0)[0] in "\"'" else re.sub(r"[^\n\t]", " ", m.group(0)), text).split("\n")
        lines, out, broken = text.split("\n"), [], False
        joined = False
        for number, (line, masked, bare) in enumerate(zip(lines, blanked, code)):
            parts = None
            if joined:
                joined = False
                continue
            if len(line.expandtabs(4)) > CODE_WIDTH and bare.strip() and not re.search(r"/\*|\\$", line):
                parts = break_line(line, masked)
            after = lines[number + 1] if number + 1 < len(lines) else ""
            if parts and parts[1].endswith(",") and after.strip() and after.lstrip()[0] not in '"{}/(':
                width = len(after.expandtabs(4)) + 1 + len(parts[1])
                joined = width <= CODE_WIDTH and not parts[1].startswith('"')
                if joined:
                    parts = (parts[0], parts[1] + " " + after.lstrip())
            out.extend(parts or [line])
            broken |= parts is not None
        text = "\n".join(out)
        if not broken:
            break
        text = indent(text)
    return text
