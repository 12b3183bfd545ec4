#!/usr/bin/env python3
"""Checks what the compiler cannot: that includes point down the layers, and that platform
conditionals stay where they belong.

    tools/check_layers.py [ROOT]        check the tree at ROOT (default: the one this file is in)
    tools/check_layers.py --self-test   check the checker

A folder of src/ may include itself, any folder of a lower row of LAYERS, and <weft/...>. Folders in
one row do not know each other.
"""

import pathlib
import re
import sys
import tempfile

# Lowest first; one set per row.
LAYERS = [
    {"base"},
    {"arch"},
    {"stack"},
    {"sched"},
    {"sync", "chan"},
    {"context", "time"},
    {"io"},
    {"net", "os", "debug", "http"},
    {"test"},
]
RANK = {name: rank for rank, row in enumerate(LAYERS) for name in row}

# Where an #if may ask for the architecture or the kernel.
PLATFORM_PLACES = ("src/arch/", "src/base/", "include/weft/detail/config.hpp")

SUFFIXES = {".hpp", ".h", ".cpp", ".S"}
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]')
CONDITIONAL = re.compile(r"^\s*#\s*(?:if|ifdef|ifndef|elif|elifdef|elifndef)\b(.*)")
PLATFORM = re.compile(
    r"\b(__x86_64__|__x86_64|__amd64__|__amd64|__i386__|__aarch64__|__arm__"
    r"|__linux__|__linux|__gnu_linux__|LINUX_VERSION_CODE|KERNEL_VERSION)\b"
)


def logical_lines(text):
    """Yields (number, line), with lines that end in a backslash joined to the next."""
    number, joined = 0, ""
    for i, line in enumerate(text.splitlines(), start=1):
        if not joined:
            number = i
        if line.endswith("\\"):
            joined += line[:-1] + " "
            continue
        yield number, joined + line
        joined = ""
    if joined:
        yield number, joined


def resolve(root, file, name):
    """Returns the file under src/ that `name`, included by `file`, means; None if it is not ours."""
    src = root / "src"
    places = [file.parent, src] + sorted(p for p in (src / "arch").glob("*") if p.is_dir())
    for place in places:
        target = (place / name).resolve()
        if target.is_file() and src in target.parents:
            return target
    # A file that does not exist (yet) is judged by the folder it names.
    if name.split("/")[0] in RANK:
        return src / name
    return None


def check(root):
    """Returns the complaints about the tree at `root`, one line each."""
    root = pathlib.Path(root).resolve()
    src = root / "src"
    complaints = []
    files = [
        f
        for top in (src, root / "include")
        for f in sorted(top.rglob("*"))
        if f.is_file() and f.suffix in SUFFIXES
    ]
    for file in files:
        where = file.relative_to(root).as_posix()
        layer = file.relative_to(src).parts[0] if src in file.parents else None
        if layer is not None and layer not in RANK:
            complaints.append(f"{where}: src/{layer} is no layer; LAYERS in {__file__} names them")
            continue
        for number, line in logical_lines(file.read_text(encoding="utf-8")):
            conditional = CONDITIONAL.match(line)
            if conditional and not where.startswith(PLATFORM_PLACES):
                asked = PLATFORM.search(conditional[1].split("//")[0].split("/*")[0])
                if asked:
                    complaints.append(
                        f"{where}:{number}: #if on {asked[1]}; that belongs in src/arch, src/base "
                        "or weft/detail/config.hpp"
                    )
            include = INCLUDE.match(line)
            target = resolve(root, file, include[1]) if include else None
            if target is None:
                continue
            below = target.relative_to(src).parts[0]
            if layer is None:
                complaints.append(f"{where}:{number}: a public header includes src/{below}")
            elif below != layer and RANK.get(below, len(LAYERS)) >= RANK[layer]:
                complaints.append(f"{where}:{number}: {layer} includes {below}, which is not below it")
    return complaints, len(files)


def self_test():
    """Every kind of mistake must be found, and a clean tree must pass."""
    good = {
        "src/base/clock.hpp": "#ifdef __linux__\n#endif\n#include <weft/detail/config.hpp>\n",
        "src/arch/context.hpp": '#include "base/clock.hpp"\n',
        "src/arch/x86_64/switch.hpp": '#include "base/clock.hpp"\n',
        "src/stack/arena.cpp": '#include "stack/arena.hpp"\n#include "arch/context.hpp"\n',
        "src/stack/arena.hpp": '#include "switch.hpp"\n#include <cstddef>\n',
        "src/sched/find.cpp": '#include "stack/arena.hpp"\n#include <weft/go.hpp>\n',
        "src/net/conn.cpp": '#include "sched/poller.hpp"\n#if FOO  // unlike __x86_64__\n#endif\n',
        "include/weft/go.hpp": "#include <weft/detail/config.hpp>\n#include <memory>\n",
        "include/weft/detail/config.hpp": "#if defined(__aarch64__)\n#endif\n",
    }
    bad = {
        "src/base/a.hpp": ('#include "arch/context.hpp"\n', "base includes arch"),
        "src/stack/b.hpp": ('# include <sched/find.hpp>\n', "stack includes sched"),
        "src/base/c.hpp": ('#include "switch.hpp"\n', "base includes arch"),
        "src/base/d.hpp": ('#include "../stack/arena.hpp"\n', "base includes stack"),
        "src/sync/e.cpp": ('#include "chan/core.hpp"\n', "sync includes chan"),
        "src/context/f.cpp": ('#include "net/conn.hpp"\n', "context includes net"),
        "src/sched/g.cpp": ("#if 1 && \\\n  defined(__x86_64__)\n#endif\n", "#if on __x86_64__"),
        "src/net/h.cpp": ("#ifdef __linux__\n#endif\n", "#if on __linux__"),
        "include/weft/i.hpp": ("#elif __aarch64__\n", "#if on __aarch64__"),
        "include/weft/j.hpp": ('#include "base/clock.hpp"\n', "a public header includes src/base"),
        "src/misc/k.cpp": ("\n", "src/misc is no layer"),
    }

    def complaints_with(extra):
        with tempfile.TemporaryDirectory() as root:
            for name, text in {**good, **extra}.items():
                path = pathlib.Path(root, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            return check(root)[0]

    failures = [f"a clean tree: {line}" for line in complaints_with({})]
    for name, (text, expected) in bad.items():
        found = complaints_with({name: text})
        if len(found) != 1 or not found[0].startswith(name) or expected not in found[0]:
            failures.append(f"{name}: expected one complaint \"{expected}\", got {found}")
    return failures


def main(arguments):
    if arguments == ["--self-test"]:
        complaints = self_test()
        summary = "the checker finds what it should"
    else:
        root = arguments[0] if arguments else pathlib.Path(__file__).resolve().parent.parent
        complaints, count = check(root)
        summary = f"{count} files, all includes point down"
        if count == 0:
            complaints = [f"{root}: no sources"]
    for line in complaints:
        print(line, file=sys.stderr)
    if complaints:
        return 1
    print(summary)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
