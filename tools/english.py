"""./zundo check: finds phrases that comments and documents should not have, and comments
of functions that begin with a question.

The phrases are those with which the subject of a sentence must be guessed, or in
which a process or a transaction is called he or she. A text without them need not
be good.
"""

import os
import re

import measure_source as measure
import rules

PHRASES = (
    (r"\b(?:who|whom|whoever|he|his|him|himself|she|her)\b", "name the process, transaction or function"),
    (r"\b(?:is|are|be|been|was|were) told\b", "say what is passed to which function"),
    (r"\bat work\b", "in progress, or running"),
    (r"\bso many\b", "say how many"),
    (r"\bto be had\b", "available"),
    (r"\b(?:goes|go|gone|going|went) on\b", "continues"),
    (r"\bis no more\b", "does not exist any more"),
    (r"\ball the same\b", "nevertheless, also"),
    (r"\bfor whose sake\b", "for which"),
    (r"\blet(?:s)? loose\b", "say what is called"),
    (r"\bworth while\b", "worthwhile"),
    (r"PROTOCOLS|STOCK-SERVER", "cite what is in the repository"),
)
PATTERN = re.compile("|".join(f"(?P<p{n}>{phrase})" for n, (phrase, _) in enumerate(PHRASES)), re.I)


def prose(path, text):
    """Returns the text with all but comments and prose blanked; no character moves."""
    def blank(match):
        return match.group(1) or re.sub(r"[^\n]", " ", match.group(0))
    if path.endswith((".c", ".h")):
        return re.sub(r'(/\*.*?\*/)|"(?:\\.|[^"\\\n])*"|[^\n]', blank, text, flags=re.S)
    if path.endswith(".py"):                # docstrings too, but no other text
        keep = r'(^[ \t]*(?:"""|\'\'\').*?(?:"""|\'\'\'))|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|(#[^\n]*)|[^\n]'
        return re.sub(keep, lambda m: m.group(1) or m.group(2) or re.sub(r"[^\n]", " ", m.group(0)), text,
                      flags=re.M | re.S)
    if path.endswith((".pl", ".pm")):       # names of tests, too: the last string of a call
        name = r"""('(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*")(?=\);[ \t]*$)"""
        return re.sub(r"^[ \t]*(#[^\n]*)|" + name + r"|[^\n]", lambda m: m.group(1) or m.group(2) or " " * len(m.group(0)),
                      text, flags=re.M)
    if path.endswith((".sh", ".spec", ".conf")):
        return re.sub(r"^[ \t]*(#[^\n]*)|[^\n]", blank, text, flags=re.M)
    if path.endswith(".sql"):
        return re.sub(r"^(--[^\n]*)|[^\n]", blank, text, flags=re.M)
    return re.sub(r"^```.*?^```|`[^`\n]*`", lambda m: re.sub(r"[^\n]", " ", m.group(0)), text, flags=re.M | re.S)


def questions():
    """Yields (path, line, words) of each comment above a declaration whose first sentence is a question."""
    for source in measure.sources():
        for match in re.finditer(r"^/\*(.*?)\*/\n(?=[A-Za-z])", source.text, re.M | re.S):
            words = re.sub(r"\s+\*?\s*", " ", match.group(1)).strip()
            first = re.match(r".*?[.?](?= |$)", words)
            if first and first.group(0).endswith("?"):
                yield source.path, measure.line_of(source.text, match.start()), words[:60]


def faults():
    """Yields (path, line, what is wrong)."""
    tools = [os.path.join(folder, name) for folder in ("tools", "bench") for name in sorted(os.listdir(os.path.join(rules.TOP, folder)))
             if name != "english.py"]           # which has the phrases
    for path in list(rules.paths()) + tools:
        if not path.endswith((".c", ".h", ".md", ".pl", ".pm", ".spec", ".sql", ".py", ".sh")):
            continue
        text = rules.read(path)
        if not PATTERN.search(text):        # most files; prose takes long
            continue
        text = prose(path, text)
        for match in PATTERN.finditer(text):
            line = text[text.rfind("\n", 0, match.start()) + 1:text.find("\n", match.start())].strip()
            advice = PHRASES[int(match.lastgroup[1:])][1]
            yield path, measure.line_of(text, match.start()), f"'{match.group(0)}' ({advice}): {line[:100]}"
    for path, number, words in questions():
        yield path, number, f"the comment of a declaration is a question: {words}"
