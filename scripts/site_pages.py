"""Pages of the documentation site that are written elsewhere in the repository. MkDocs calls the functions
``on_...`` of this file while it builds (mkdocs.yml names it).

README.md and CONTRIBUTING.md, examples and studies with their output, each method's source under its page,
and the reference of commands and Python names, which is what the code says about itself.
"""

import importlib
import inspect
import os
import re
from itertools import chain
from pathlib import Path
from typing import Any

import click
import typer
from house import imported
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import fedcohort
import fedcohort.api
from fedcohort.cli.app import app

REPOSITORY = Path(__file__).parents[1]
SOURCE = "src/fedcohort/methods"
FOLDERS = ("examples", "studies")  # their pages lie beside what made them
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def homes() -> dict[str, str]:
    """Where files of the repository are on the site; those in docs/ keep their place."""
    own = [path for folder in FOLDERS for path in sorted((REPOSITORY / folder).iterdir())]
    return {
        "README.md": "index.md",
        "CONTRIBUTING.md": "contributing.md",
        "CHANGELOG.md": "changes.md",
        **{
            f"{p.parent.name}/{p.name}": f"{p.parent.name}/{p.name}"
            for p in own
            if p.suffix in (".md", ".svg")
        },
    }


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fills in the folders of the navigation, and adds pages that it does not name to the guide."""
    docs = Path(config.docs_dir)
    folders = {
        "methods/": [f"methods/{path.name}" for path in sorted((docs / "methods").glob("*.md"))],
        **{
            f"{name}/": [
                page for page in homes().values() if page.startswith(f"{name}/") and page.endswith(".md")
            ]
            for name in FOLDERS
        },
    }
    folders["methods/"].sort(key=lambda page: page != "methods/index.md")
    assert config.nav is not None
    text = str(config.nav)
    unlisted = [path.name for path in sorted(docs.glob("*.md")) if f"'{path.name}'" not in text]
    for section in config.nav:
        for name, pages in section.items():
            if isinstance(pages, list):
                filled = [folders.get(page, [page]) if isinstance(page, str) else [page] for page in pages]
                section[name] = [*chain(*filled), *(unlisted if name == "Guide" else [])]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    texts = {page: (REPOSITORY / path).read_text(encoding="utf-8") for path, page in homes().items()}
    texts |= {"commands.md": commands_page(), "python.md": python_page(), "api.md": api_page()}
    for page, text in texts.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links between files of the repository become links between pages, or plain text."""
    here = page.file.src_uri
    written = {site: path for path, site in homes().items()}.get(here, f"docs/{here}")
    source = f"{SOURCE}/{Path(here).stem}.py"
    if here.startswith("methods/") and (REPOSITORY / source).exists():
        code = (REPOSITORY / source).read_text(encoding="utf-8")
        markdown = f"{markdown}\n## Source\n\n```python\n{code}```\n"

    def relink(link: re.Match[str]) -> str:
        image, text, target, anchor = link.groups()
        path = os.path.normpath(Path(written).parent / target)
        if not (REPOSITORY / path).exists():
            return link[0]  # another site, or no link at all
        if path == source:
            return f"[{text}](#source)"
        site = homes().get(path, path.removeprefix("docs/") if path.startswith("docs/") else None)
        if site is None:
            return f"`{text}`" if text == path else text
        return f"{image}[{text}]({os.path.relpath(site, Path(here).parent)}{anchor or ''})"

    return LINK.sub(relink, markdown)


def commands_page() -> str:
    """Every command with its options, as ``--help`` tells them."""
    sections = ["# Commands", "Every command answers `--help`; those with `--json` print one JSON object."]
    group = typer.main.get_command(app)
    assert isinstance(group, click.Group)
    for name, command in walk(group, "fedcohort"):
        said = re.sub(r"\[(/?)bold\]", "**", inspect.cleandoc(command.help or ""))
        sections += [f"## {name}", said, option_table(command)]
    return "\n\n".join(sections) + "\n"


def walk(group: click.Group, path: str) -> list[tuple[str, click.Command]]:
    found = []
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            found += walk(command, f"{path} {name}")
        else:
            found.append((f"{path} {name}", command))
    return found


def option_table(command: click.Command) -> str:
    rows = ["| | | default |", "|---|---|---|"]
    for param in command.params:
        names = ", ".join(f"`{word}`" for word in (*param.opts, *param.secondary_opts))
        if isinstance(param, click.Argument):
            names = f"`{(param.name or '').upper()}`"
        default = "" if param.default in (None, False) or callable(param.default) else f"`{param.default}`"
        rows.append(f"| {names} | {cell(getattr(param, 'help', None) or '')} | {cell(default)} |")
    return "\n".join(rows) if command.params else ""


def python_page() -> str:
    """The names of ``import fedcohort as fc``, with what their docstrings say."""
    head = ["# Python", "`import fedcohort as fc` gives these names; each is imported when first used."]
    return reference(head, fedcohort, "fc.")


def api_page() -> str:
    """The names that files of one's own import, with what their docstrings say."""
    return reference(["# Files of your own", prose(fedcohort.api)], fedcohort.api, "")


def reference(head: list[str], module: Any, prefix: str) -> str:
    homes = {full.rpartition(".")[2]: full.rpartition(".")[0] for _, full in imported(Path(module.__file__))}
    sections = head
    for name in module.__all__:
        thing, home = getattr(module, name), homes.get(name, module.__name__)
        if inspect.isroutine(thing) or getattr(thing, "__name__", "").rpartition(".")[2] == name:
            call = signature(thing)
            shown = "" if inspect.ismodule(thing) else f"```text\n{prefix}{name}{call}\n```"
            sections += [f"## {name}", shown, prose(thing), members(thing)]
        else:  # another name for a type, or a number
            sections += [f"## {name}", *constant(name, home)]
        sections.append(f"*{home}*")
    return "\n\n".join(section for section in sections if section) + "\n"


def constant(name: str, home: str) -> tuple[str, str]:
    """What a module says a name is, and the comment behind it."""
    source = inspect.getsource(importlib.import_module(home))
    found = re.search(rf"^({name} = .*?)(?:  # (.*))?$", source, re.MULTILINE)
    assert found is not None, name
    return f"```text\n{found[1]}\n```", prose(found[2] or "")


def signature(thing: Any) -> str:
    """As it is called, one parameter a line where they are many."""
    try:
        known = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    text = re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", str(known))  # class names without their modules
    text = re.sub(r"<factory>", "...", text)
    if len(text) < 70:
        return text
    words = [re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", str(each)) for each in known.parameters.values()]
    short = (word if len(word) < 90 else re.sub(r"(: | = \w*\().*", r"\1...", word) for word in words)
    lines = "".join(f"    {word.replace('<factory>', '...')},\n" for word in short)
    return f"(\n{lines}){text[text.rindex(') ->') + 1 :] if ') ->' in text else ''}"


def members(thing: Any) -> str:
    """The public methods of a class, a line each."""
    if not inspect.isclass(thing) or issubclass(thing, Exception):
        return ""
    named = [(name, inspect.unwrap(getattr(thing, name))) for name in vars(thing) if name[0] != "_"]
    own = [(name, method) for name, method in named if inspect.isroutine(method) and method.__doc__]
    return "\n".join(f"- `{name}`: {' '.join(prose(method).split())}" for name, method in own)


def prose(thing: Any) -> str:
    """A docstring, or a comment, as Markdown."""
    said = thing if isinstance(thing, str) else inspect.getdoc(thing) or ""
    roles = re.compile(r":\w+:`~?([^`]*)`|``([^`]*)``")
    return roles.sub(lambda found: f"`{found[1] or found[2]}`", said)


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
