#!/usr/bin/env python3
"""Checks what the compiler cannot: that includes point down the layers, and that platform
conditionals stay where they belong.

    tools/check_layers.py [ROOT]        check the tree at ROOT (default: the one this file is in)
    tools/check_layers.py --self-test   check the checker

A folder of src/ may include itself and any folder of a lower row of LAYERS. Folders in one row do not
know each other. A public header belongs to a folder's layer as well, by the table PUBLIC, and counts
like a file of that folder, no matter which file includes it.
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
    {"time"},
    {"context"},
    {"io"},
    {"net"},
    {"os", "debug"},
    {"http"},
    {"test"},
    {"everything"},
]
RANK = {name: rank for rank, row in enumerate(LAYERS) for name in row}

# The layer of each public header, by its path below include/weft/.
PUBLIC = {
    "base": "detail/config.hpp detail/linked_list.hpp",
    "sched": "go.hpp go_options.hpp detail/future_state.hpp detail/interruption.hpp detail/one_shot.hpp detail/park.hpp"
    " detail/nanoseconds.hpp detail/wait_limit.hpp detail/task.hpp",
    "chan": "chan.hpp select.hpp detail/chan_core.hpp detail/context_watcher.hpp detail/select_core.hpp",
    "sync": "sync.hpp barrier.hpp condition_variable.hpp latch.hpp mutex.hpp once.hpp pool.hpp"
    " semaphore.hpp shared_mutex.hpp wait_group.hpp"
    " detail/barrier_core.hpp detail/condition_core.hpp detail/mutex_core.hpp detail/once_core.hpp"
    " detail/semaphore_core.hpp detail/shared_mutex_core.hpp"
    " detail/wait_group_core.hpp detail/wait_queue.hpp",
    "time": "time.hpp",
    "context": "context.hpp group.hpp single_flight.hpp detail/context_wait.hpp",
    "io": "detail/descriptor.hpp",
    "net": "net.hpp",
    "os": "os.hpp",
    "debug": "debug.hpp",
    "http": "http.hpp",
    "test": "test.hpp",
    "everything": "weft.hpp",
}
LAYER_OF = {header: layer for layer, headers in PUBLIC.items() for header in headers.split()}

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


def layer_of(root, file):
    """Returns the layer of a file below src/ or include/weft/; None if the tables have none for it."""
    if root / "src" in file.parents:
        folder = file.relative_to(root / "src").parts[0]
        return folder if folder in RANK else None
    return LAYER_OF.get(file.relative_to(root / "include/weft").as_posix())


def reach_of(root, file):
    """Returns the rank below which `file` may include other layers."""
    rank = RANK[layer_of(root, file)]
    public = root / "include/weft"
    if file.parent == public:
        # What waits takes a context as an argument, whichever its own row: m.lock(ctx).
        rank = max(rank, RANK["context"] + 1)
    return rank


def resolve(root, file, name):
    """Returns the file of ours that `name`, included by `file`, means; None if it is not ours."""
    src = root / "src"
    if name.startswith("weft/"):
        return root / "include" / name
    places = [file.parent, src] + sorted(p for p in (src / "arch").glob("*") if p.is_dir())
    for place in places:
        target = (place / name).resolve()
        if target.is_file() and src in target.parents:
            return target
    # A file that does not exist (yet) is judged by the folder it names.
    if name.split("/")[0] in RANK:
        return src / name
    return None


def check_file(root, file):
    """Yields the complaints about one file, whose layer is known."""
    where = file.relative_to(root).as_posix()
    layer = layer_of(root, file)
    for number, line in logical_lines(file.read_text(encoding="utf-8")):
        conditional = CONDITIONAL.match(line)
        if conditional and not where.startswith(PLATFORM_PLACES):
            asked = PLATFORM.search(conditional[1].split("//")[0].split("/*")[0])
            if asked:
                yield (
                    f"{where}:{number}: #if on {asked[1]}; that belongs in src/arch, src/base "
                    "or weft/detail/config.hpp"
                )
        include = INCLUDE.match(line)
        target = resolve(root, file, include[1]) if include else None
        if target is None:
            continue
        is_public = root / "include" in target.parents
        if root / "include" in file.parents and not is_public:
            yield f"{where}:{number}: a public header includes src/{target.relative_to(root / 'src')}"
            continue
        below = layer_of(root, target)
        # A header without a layer has its own complaint, if it exists.
        if below is not None and below != layer and RANK[below] >= reach_of(root, file):
            yield f"{where}:{number}: {layer} includes {below}, which is not below it"


def check(root):
    """Returns the complaints about the tree at `root`, one line each, and the number of files."""
    root = pathlib.Path(root).resolve()
    complaints = []
    files = [
        f
        for top in (root / "src", root / "include/weft")
        for f in sorted(top.rglob("*"))
        if f.is_file() and f.suffix in SUFFIXES
    ]
    for file in files:
        if layer_of(root, file) is not None:
            complaints += check_file(root, file)
            continue
        where = file.relative_to(root).as_posix()
        if where.startswith("src/"):
            folder = "/".join(where.split("/")[:2])
            complaints.append(f"{where}: {folder} is no layer; LAYERS in {__file__} names them")
        else:
            complaints.append(f"{where}: this header has no layer; give it one in PUBLIC, {__file__}")
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
        "include/weft/mutex.hpp": "#include <weft/context.hpp>\n#include <weft/sync.hpp>\n",
        "include/weft/os.hpp": "#include <weft/net.hpp>\n#include <weft/needs/c++23>\n",
        "include/weft/weft.hpp": "#include <weft/http.hpp>\n#include <weft/os.hpp>\n",
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
        "include/weft/time.hpp": ("#elif __aarch64__\n", "#if on __aarch64__"),
        "include/weft/chan.hpp": ('#include "base/clock.hpp"\n', "a public header includes src/base"),
        "src/misc/k.cpp": ("\n", "src/misc is no layer"),
        "src/io/l.cpp": ("#include <weft/net.hpp>\n", "io includes net"),
        "src/sync/m.cpp": ("#include <weft/context.hpp>\n", "sync includes context"),
        "src/net/n.cpp": ("#include <weft/weft.hpp>\n", "net includes everything"),
        "include/weft/net.hpp": ("#include <weft/os.hpp>\n", "net includes os"),
        "include/weft/select.hpp": ("#include <weft/net.hpp>\n", "chan includes net"),
        "include/weft/detail/mutex_core.hpp": (
            "#include <weft/context.hpp>\n",
            "sync includes context",
        ),
        "include/weft/misc.hpp": ("\n", "this header has no layer"),
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
