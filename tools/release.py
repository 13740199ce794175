"""Checks of what a release is made of: META.json, version numbers, the manual page.

check_source.py calls the functions that yield (path, line, what is wrong). META.json is
held against the keys that version 1.0.0 of the PGXN Meta Spec requires.
"""

import json
import os
import re

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

LICENSES = {"agpl_3", "apache_1_1", "apache_2_0", "artistic_1", "artistic_2", "bsd", "freebsd", "gfdl_1_2", "gfdl_1_3",
            "gpl_1", "gpl_2", "gpl_3", "lgpl_2_1", "lgpl_3_0", "mit", "mozilla_1_0", "mozilla_1_1", "openssl", "perl_5",
            "postgresql", "qpl_1_0", "ssleay", "sun", "zlib", "open_source", "restricted", "unrestricted", "unknown"}
SEMANTIC = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)([a-zA-Z][-0-9A-Za-z]*)?$")
PHASES = {"configure", "build", "test", "runtime", "develop"}
RELATIONS = {"requires", "recommends", "suggests", "conflicts"}


def read(path):
    """Returns the text of a file of the checkout."""
    with open(os.path.join(TOP, path), encoding="utf-8") as file:
        return file.read()


def meta_faults(meta):
    """Yields what the meta specification does not allow in this object."""
    for key in ("name", "version", "abstract", "maintainer", "license", "provides", "meta-spec"):
        if not meta.get(key):
            yield f"the key {key} is missing"
    if not SEMANTIC.match(meta.get("version", "")):
        yield "version is no semantic version"
    if len(meta.get("name", "")) < 2 or re.search(r"[\s/\\\x00-\x1f]", meta.get("name", "")):
        yield "name is no term: two characters or more, without spaces and slashes"
    if isinstance(meta.get("license"), str) and meta["license"] not in LICENSES:
        yield f"license {meta['license']} is not in the specification's list"
    if not re.match(r"1\.\d+\.\d+$", meta.get("meta-spec", {}).get("version", "")):
        yield "meta-spec names no version 1"
    if meta.get("release_status", "stable") not in ("stable", "testing", "unstable"):
        yield "release_status is none of stable, testing, unstable"
    for name, extension in meta.get("provides", {}).items():
        for key in ("file", "version"):
            if not extension.get(key):
                yield f"provides.{name} has no {key}"
        if not SEMANTIC.match(extension.get("version", "")):
            yield f"the version of provides.{name} is no semantic version"
        for key in ("file", "docfile"):
            if extension.get(key) and not os.path.exists(os.path.join(TOP, extension[key])):
                yield f"provides.{name}.{key} does not exist"
    for phase, relations in meta.get("prereqs", {}).items():
        if phase not in PHASES or not set(relations) <= RELATIONS:
            yield f"prereqs.{phase} has a phase or a relation that the specification does not know"


def check_meta():
    """Mend META.json by the meta specification of PGXN."""
    try:
        meta = json.loads(read("META.json"))
    except ValueError as error:
        yield "META.json", 1, f"is no JSON: {error}"
        return
    for fault in meta_faults(meta):
        yield "META.json", 1, fault


def check_numbers():
    """Write the number of META.json and of zundo.control, or what follows from them, in the other files, too."""
    version = json.loads(read("META.json"))["version"]
    control = re.search(r"^default_version = '(.*)'", read("zundo.control"), re.M).group(1)
    if version.rpartition(".")[0] != control:
        yield "zundo.control", 1, f"default_version is {control}, META.json has {version}"
    if not os.path.exists(os.path.join(TOP, f"zundo--{control}.sql")):
        yield "zundo.control", 1, f"zundo--{control}.sql does not exist"
    for path, pattern in (("debian/changelog", r"^zundo \((.*)-\d+\)"), ("packaging/zundo.spec", r"^Version:\s*(\S+)")):
        found = re.search(pattern, read(path), re.M).group(1)
        if found != version:
            yield path, 1, f"is of version {found}, META.json of {version}"
    if not re.search(rf"^## {re.escape(control)}\b", read("CHANGELOG.md"), re.M):
        yield "CHANGELOG.md", 1, f"has no heading for {control}"


def check_manual():
    """Describe in docs/zundo.1 each command and option that ./zundo help lists, and none that it does not."""
    usage = re.search(r"cat <<'T'\n(.*?)\nT\n", read("zundo"), re.S).group(1)
    manual = read("docs/zundo.1").replace("\\-", "-")
    if set(re.findall(r"^  ([a-z-]+) ", usage, re.M)) != set(re.findall(r"^\.SS ([a-z-]+)", manual, re.M)):
        yield "docs/zundo.1", 1, "its sections .SS are not the commands of ./zundo help"
    listed, described = (set(re.findall(r"--[a-z][a-z-]+", text)) for text in (usage, manual))
    for option in sorted(listed ^ described):
        yield "docs/zundo.1", 1, f"{option} is in {'./zundo help' if option in listed else 'the manual'} only"
