"""Follows every link of the rendered site that stays on it, with its anchor."""

import html.parser
import urllib.parse


class Page(html.parser.HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, text):
        super().__init__()
        self.targets, self.anchors = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.anchors.update(found[name] for name in ("id", "name") if found.get(name))
        for name in ("href", "src"):
            if found.get(name) and tag != "base":
                self.targets.append(found[name])


def check(out):
    """What leads nowhere, one line each."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(out.rglob("*.html"))}
    faults = []
    for path, page in pages.items():
        if path.name == "404.html":
            # Its links are absolute, below an address that the site does not know here.
            continue
        for target in page.targets:
            parts = urllib.parse.urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            where = path if not parts.path else (path.parent / urllib.parse.unquote(parts.path)).resolve()
            where = where / "index.html" if where.is_dir() else where
            anchor = urllib.parse.unquote(parts.fragment)
            if not where.is_file():
                faults.append(f"{path.relative_to(out)}: `{target}` leads nowhere")
            elif anchor and where in pages and anchor not in pages[where].anchors and not anchor.startswith("__"):
                faults.append(f"{path.relative_to(out)}: `{target}` leads to no heading")
    if not pages:
        faults.append("there are no pages")
    return faults
