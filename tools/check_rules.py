#!/usr/bin/env python3
"""Checks rules of CONTRIBUTING.md that neither a compiler nor clang-format knows.

    tools/check_rules.py [ROOT]        check the tree at ROOT (default: the one this file is in)
    tools/check_rules.py --self-test   check the checker

orders  Every access in src/ and include/ with the order acquire, release, acq_rel or seq_cst has a
        tag, such as [S1], in a comment at its statement or directly above it. (A signal fence is no
        access: it orders one thread against its own signal handler.)
tags    Every tag in src/, include/ and tests/ has one line in docs/memory-model.md. That line names
        the one file whose comments explain the tag. No file of another folder explains it ("[S1] a
        -> b"), because then one tag would mean two things.
heads   Every source file in src/ opens with a comment, or first includes a header of ours that does.
lists   The comment at the head of src/sched/scheduler.hpp, which is the table of contents, names each
        file of that folder. If a header and a source have one name, one of them is enough.
names   Every type and function of namespace weft that a header in include/weft/ declares, apart from
        namespaces called detail, has a comment above it or at its end.
paths   Every file or folder that README.md, CONTRIBUTING.md, ARCHITECTURE.md or a page in docs/ names
        with a slash exists. In a row of a table, names may begin at the folders of its first cell.
length  No function in src/ or include/ has more than 70 lines.
columns No line of C++ has more than 100 columns: clang-format leaves comments as they are written.
"""

import pathlib
import re
import sys
import tempfile

LINES_MAX = 70  # of a function

ORDER = re.compile(r"\bmemory_order(?:_|::)(?:acquire|release|acq_rel|seq_cst)\b")
IS_NO_ACCESS = re.compile(
    r"_fence\b|\bconstexpr\b|[=!]= ?std::memory_order|return std::memory_order"
)
TAG = re.compile(r"\[([A-Z]{1,3}[0-9]+)\]")
EXPLANATION = re.compile(r"^\W*\[([A-Z]{1,3}[0-9]+)\].*(?:->|→)")
ROW = re.compile(r"^\| \[([A-Z]{1,3}[0-9]+)\] \| (\S+) \|")
SOURCES = {".hpp", ".cpp", ".S"}


def split(line):
    """Returns the code and the comment of a line. Knows strings, not /* */, which we do not use."""
    quoted = None
    i = 0
    while i < len(line):
        c = line[i]
        if quoted:
            if c == "\\":
                i += 1
            elif c == quoted:
                quoted = None
        elif c == '"' or (c == "'" and not (i and line[i - 1].isalnum())):
            quoted = c
        elif line.startswith("//", i):
            return line[:i].rstrip(), line[i:]
        i += 1
    return line.rstrip(), ""


def files_below(root, *tops):
    for top in tops:
        for file in sorted((root / top).rglob("*")):
            if file.is_file() and file.suffix in SOURCES:
                yield file.relative_to(root).as_posix(), file.read_text(encoding="utf-8")


def statements(lines):
    """Yields (first line's number, code, comments) of every statement that names a memory order.

    The comments are those in the statement, at its end and in the lines directly above it.
    """
    at = 0
    while at < len(lines):
        if not ORDER.search(lines[at][0]):
            at += 1
            continue
        first = at
        while first > 0 and lines[first - 1][0] and lines[first - 1][0][-1] not in ";{}:":
            first -= 1
        last = at
        while last + 1 < len(lines) and (not lines[last][0] or lines[last][0][-1] not in ";{}"):
            last += 1
        above = first
        while above > 0 and not lines[above - 1][0] and lines[above - 1][1]:
            above -= 1
        yield (
            at + 1,
            " ".join(code for code, _ in lines[first : last + 1]),
            " ".join(comment for _, comment in lines[above : last + 1]),
        )
        at = last + 1


def check_orders(root):
    for where, text in files_below(root, "src", "include"):
        lines = [split(line) for line in text.splitlines()]
        for number, code, comments in statements(lines):
            if not IS_NO_ACCESS.search(code) and not TAG.search(comments):
                yield f"{where}:{number}: an acquire or release without the tag of its pair"


def check_tags(root):
    table = {}
    document = "docs/memory-model.md"
    path = root / document
    if path.is_file():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            row = ROW.match(line)
            if row and row[1] in table:
                yield f"{document}:{number}: [{row[1]}] has two lines"
            elif row:
                table[row[1]] = (number, row[2])
    mentions = {}
    for where, text in files_below(root, "src", "include", "tests"):
        for number, line in enumerate(text.splitlines(), start=1):
            comment = split(line)[1] or (line if where.endswith(".S") else "")
            for tag in TAG.findall(comment):
                mentions.setdefault(tag, {}).setdefault(where, number)
            explained = EXPLANATION.match(comment)
            home = table.get(explained[1], (0, ""))[1] if explained else ""
            if home and home.split("/")[0] not in where.split("/"):
                yield (
                    f"{where}:{number}: [{explained[1]}] is explained here and, by {document}, in "
                    f"{home}; two pairs need two tags"
                )
    for tag, places in sorted(mentions.items()):
        if tag not in table:
            where, number = next(iter(places.items()))
            yield f"{where}:{number}: [{tag}] has no line in {document}"
    for tag, (number, home) in sorted(table.items()):
        if not any(where.endswith("/" + home) for where in mentions.get(tag, {})):
            yield f"{document}:{number}: no file {home} mentions [{tag}]"


def check_heads(root):
    texts = dict(files_below(root, "src", "include"))
    for where, text in texts.items():
        if not where.startswith("src/") or text.startswith("//"):
            continue
        first = re.match(r'#include ["<]([^">]+)[">]', text)
        name = first[1] if first else ""
        header = texts.get("include/" + name) or texts.get("src/" + name) or ""
        if not header.startswith("//"):
            yield f"{where}:1: neither this file nor the header it belongs to opens with a comment"


CONTENTS = "src/sched/scheduler.hpp"


def check_lists(root):
    path = root / CONTENTS
    if not path.is_file():
        return
    head = re.match(r"(?://.*\n)*", path.read_text(encoding="utf-8"))[0]
    listed = set(re.findall(r"\b(\w+)\.[ch]pp\b", head))
    for stem in sorted({file.stem for file in path.parent.iterdir() if file.suffix in SOURCES}):
        if stem not in listed:
            yield f"{CONTENTS}:1: the table of contents does not name {stem}"


# What begins a line in column 0 and declares nothing of ours that needs a comment.
NO_NAME = re.compile(
    r"^(?:[#}/\s)]|namespace\b|using\b|template\b|extern\b|static_assert\b|requires\b"
    r"|(?:class|struct) (?:WEFT_API )?\w+;|(?:template <> ?)?struct std::|WEFT_API const std::error_category&"
    r"|inline std::error_code make_error_code)"
)
# A member, or a name declared elsewhere, that is defined here.
DEFINITION = re.compile(r"^[^(]*(?:\bdetail|\w>)::\w+(?:<.*>)?\(")


def check_names(root):
    public = root / "include/weft"
    for where, text in files_below(root, "include/weft"):
        if (root / where).parent != public:
            continue
        namespaces = []
        covered = False  # whether the paragraph has had a comment
        goes_on = False  # whether the line before did not end a declaration
        for number, line in enumerate(text.splitlines(), start=1):
            code, comment = split(line)
            opened = re.match(r"(?:inline )?namespace (\S+) \{$", code)
            if opened:
                namespaces.append(opened[1])
            elif line.startswith("}  // namespace"):
                namespaces = namespaces[:-1]
            if not line.strip() or line.startswith("}"):
                covered = False
            if comment:
                covered = True
            if not code:
                goes_on = False
                continue
            begins = not goes_on and not NO_NAME.match(line) and not DEFINITION.match(line)
            goes_on = code[-1] not in ";{}>" and not line.startswith(("#", "template"))
            hidden = not namespaces or any(n.split("::")[-1] in ("detail", "io") for n in namespaces)
            if begins and not covered and not hidden:
                yield f"{where}:{number}: a public name without a comment"


PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]*)`")
# Where the name of a path may begin.
PATHS_BEGIN = ("", "src", "include", "include/weft", "tests")
NOT_HERE = ("build/",)  # made by a build


def check_paths(root):
    pages = [root / name for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md")]
    for page in filter(pathlib.Path.is_file, pages + sorted((root / "docs").rglob("*.md"))):
        where = page.relative_to(root).as_posix()
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
            first_cell = line.split("|")[1] if line.startswith("|") else ""
            begins = [*PATHS_BEGIN, *PATH.findall(first_cell)]
            for name in PATH.findall(line):
                # A test may be named by its program, which is called like its source.
                found = (root / b / (name + end) for b in begins for end in ("", ".cpp"))
                if not name.startswith(NOT_HERE) and not any(path.exists() for path in found):
                    yield f"{where}:{number}: there is no {name}"


RAW_STRING = re.compile(r'R"([^(\s]*)\(.*?\)\1"', re.DOTALL)
STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')
ATTRIBUTE = re.compile(r"\[\[.*?\]\]", re.DOTALL)
# What may stand between the parameters of a function and its body, from their end on.
BEFORE_BODY = re.compile(r"\)(?:[^()]|\([^()]*\))*$")
NO_FUNCTION = re.compile(r"(?:else|do|if|for|while|switch|catch|namespace|enum|class|struct|union|extern)\b")


def bodies(text):
    """Yields (line of the beginning, line of the end, is a function) of every block in braces."""
    text = RAW_STRING.sub(lambda s: "\n" * s[0].count("\n"), text)
    opened = []
    head = ""  # what came since the last of ;{}
    for number, line in enumerate(text.splitlines(), start=1):
        code = split(line)[0]
        if code.startswith("#"):
            continue
        for c in STRING.sub('""', code).replace("'{'", "").replace("'}'", "") + "\n":
            if c == "{":
                begins = number - head.lstrip().count("\n")
                named = ATTRIBUTE.sub("", head).strip()
                opened.append(
                    (begins, bool(BEFORE_BODY.search(named)) and not NO_FUNCTION.match(named))
                )
            elif c == "}" and opened:
                begins, is_function = opened.pop()
                yield begins, number, is_function
            head = "" if c in ";{}" else head + c


def check_length(root):
    for where, text in files_below(root, "src", "include"):
        if where.endswith(".S"):
            continue
        for begins, ends, is_function in bodies(text):
            lines = ends - begins + 1
            if is_function and lines > LINES_MAX:
                yield f"{where}:{begins}: a function of {lines} lines; {LINES_MAX} is the limit"


COLUMNS_MAX = 100


def check_columns(root):
    for where, text in files_below(root, "src", "include", "tests", "bench", "examples"):
        for number, line in enumerate(text.splitlines(), start=1):
            if len(line) > COLUMNS_MAX:
                yield f"{where}:{number}: a line of {len(line)} columns; {COLUMNS_MAX} is the limit"


CHECKS = (check_orders, check_tags, check_heads, check_lists, check_names, check_paths, check_length, check_columns)


def check(root):
    """Returns the complaints about the tree at `root`, one line each."""
    root = pathlib.Path(root).resolve()
    return [complaint for rule in CHECKS for complaint in rule(root)]


def self_test():
    """Every kind of mistake must be found, and a clean tree must pass."""
    good = {
        "docs/memory-model.md": "| [A1] | base/a.hpp | set -> get |\n| [B1] | base/b.hpp | x |\n",
        "src/base/a.hpp": "// a.hpp: a pair.\n//   [A1] set's release -> get's acquire.\n",
        "src/base/a.cpp": (
            '#include "base/a.hpp"\n'
            "void set() { x.store(1, std::memory_order_release); }  // [A1]\n"
            "// [A1] Above.\n"
            "int get() {\n"
            '  // It "returns" x. [A1]\n'
            "  return f(x,\n"
            "           x.load(std::memory_order_acquire));\n"
            "}\n"
            "void in_order() { std::atomic_signal_fence(std::memory_order_seq_cst); }\n"
            "// x.load(std::memory_order_acquire) in a comment\n"
            "int hint() { return x.load(std::memory_order_relaxed); }\n"
        ),
        "src/base/b.hpp": "// b.hpp: [B1] as in a.hpp.\n",
        "README.md": "| `src/base/`, `docs/` | `a.hpp` | `memory-model.md` |\n`base/a` `/no/such`, `build/x`\n",
        "src/base/g.cpp": (
            "// g.cpp\nnamespace n {\ntemplate <class T>\nstruct [[nodiscard(\"\")]] s {\n" + "  int a;\n" * 80 + "};\n"
            "template <class T>\nvoid f(T (&t)[2]) noexcept {\n" + "  // }\n" * 67 + "}\n"
            'const char* t = R"({)";\nint table[] = {\n' + "    f(),\n" * 80 + "};\n}  // namespace n\n"
        ),
        "docs/a.md": "| `src/` | `base/` |\n",
        "src/sched/scheduler.hpp": "// scheduler.hpp: seat.hpp\n#include <x>\n// spare.hpp\n",
        "src/sched/seat.hpp": "// seat.hpp\n",
        "src/sched/seat.cpp": "// seat.cpp\n",
        "include/weft/c.hpp": (
            "// c.hpp\n#pragma once\n\nnamespace weft {\nclass later;\n\n// A value.\ntemplate <class T>\n"
            "class value {\n public:\n  int get();\n};\n\n// Two of a kind.\nint one();\nint two(\n"
            "    int a);\n\nbool is_there();  // it is\n\nnamespace detail {\nint hidden();\n}  // namespace"
            " detail\n}  // namespace weft\n"
        ),
    }
    bad = {
        "src/base/d.cpp": (
            "// d.cpp\nint get() { return x.load(std::memory_order_acquire); }\n",
            "without the tag",
        ),
        "src/sched/spare.hpp": ("// spare.hpp\n", "does not name spare"),
        "src/base/e.cpp": ("int x;\n", "opens with a comment"),
        "src/base/f.cpp": ("// f.cpp: see [Z9].\n", "[Z9] has no line"),
        "tests/g.hpp": ("int x;  // [A1] another's release -> an acquire\n", "is explained here"),
        "docs/memory-model.md": (
            good["docs/memory-model.md"] + "| [A1] | base/a.hpp | again |\n",
            "has two lines",
        ),
        "src/base/b.hpp": ("// b.hpp: nothing.\n", "mentions [B1]"),
        "include/weft/h.hpp": (
            "namespace weft {\n// One.\nint one();\n\nint two();\n}  // namespace weft\n",
            "a public name without",
        ),
        "src/base/j.cpp": (
            "// j.cpp\nclass c {\n  c(int a,\n    int b)\n      : a_(a), b_(f(b)) {\n"
            + "    // {\n" * 67
            + "  }\n};\n",
            "a function of 71 lines",
        ),
        "CONTRIBUTING.md": ("| `src/base/` | `gone/` |\n", "there is no gone/"),
        "docs/b.md": ("As in `src/base/c.hpp`.\n", "there is no src/base/c.hpp"),
        "include/weft/i.hpp": (
            "namespace weft {\ntemplate <class T>\nclass two {\n};\n}  // namespace weft\n",
            "a public name without",
        ),
    }

    def complaints_with(extra):
        with tempfile.TemporaryDirectory() as root:
            for name, text in {**good, **extra}.items():
                path = pathlib.Path(root, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            return check(root)

    failures = [f"a clean tree: {line}" for line in complaints_with({})]
    for name, (text, expected) in bad.items():
        found = complaints_with({name: text})
        if len(found) != 1 or expected not in found[0]:
            failures.append(f'{name}: expected one complaint "{expected}", got {found}')
    return failures


def main(arguments):
    if arguments == ["--self-test"]:
        complaints = self_test()
        summary = "the checker finds what it should"
    else:
        root = arguments[0] if arguments else pathlib.Path(__file__).resolve().parent.parent
        complaints = check(root)
        summary = "no violation"
    for line in complaints:
        print(line, file=sys.stderr)
    if complaints:
        return 1
    print(summary)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
