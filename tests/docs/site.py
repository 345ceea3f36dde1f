# SPDX-License-Identifier: Apache-2.0
"""site.py: scripts/site builds a site whose pages, links, pictures and search work in Chromium, from a folder and from a server.

Chromium is spoken to through two pipes, by its DevTools protocol. Skips without Chromium."""
import functools
import http.server
import json
import os
import pathlib
import re
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PHONE = 360
# A page's anchors and links, its pictures that do not show, and its elements that stick out beyond the right edge of a phone.
LOOK = """(() => {
  const scrolls = e => e && !e.matches('.content') && (/auto|scroll/.test(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
  const name = e => `<${e.tagName.toLowerCase()} class="${e.className}"> ${e.textContent.trim().slice(0, 40)}`;
  const width = document.documentElement.clientWidth;  // without a scroll bar
  const right = e => e.getBoundingClientRect().left + Math.max(e.getBoundingClientRect().width, e.scrollWidth);
  return JSON.stringify({
    ids: [...document.querySelectorAll('[id]')].map(e => e.id).concat([...document.querySelectorAll('a[name]')].map(e => e.name)),
    links: [...document.links].map(a => a.href),
    hidden: [...document.images].filter(i => !i.complete || !i.naturalWidth).map(i => i.src),
    wide: [...document.querySelectorAll('.content *')].filter(e => right(e) > width + 1 && !scrolls(e)).map(name),
    sideways: document.scrollingElement.scrollWidth > width,
    background: getComputedStyle(document.body).backgroundColor,
  })})()"""


class Browser:
    """One tab of Chromium. Remembers its requests and the errors of its console."""

    def __init__(self, command):
        self.profile = tempfile.mkdtemp()
        to_read, self.to = os.pipe()
        self.from_, from_write = os.pipe()

        def pipes():
            os.dup2(to_read, 13), os.dup2(from_write, 14)
            os.dup2(13, 3), os.dup2(14, 4)

        self.process = subprocess.Popen([command, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe",
                                         f"--user-data-dir={self.profile}", "about:blank"], preexec_fn=pipes, close_fds=False,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read), os.close(from_write)
        self.rest, self.count, self.events, self.session = b"", 0, [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.call("Page.setLifecycleEventsEnabled", enabled=True)

    def close(self):
        os.close(self.to), os.close(self.from_)
        self.process.kill(), self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)

    def read(self):
        while b"\0" not in self.rest:
            if not select.select([self.from_], [], [], 120)[0]:
                raise AssertionError(f"Chromium is silent; last it said {self.events[-1:]}")
            got = os.read(self.from_, 1 << 16)
            if not got:
                raise ConnectionError("Chromium has ended")
            self.rest += got
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **params):
        self.count += 1
        message = {"id": self.count, "method": method, "params": params, **({"sessionId": self.session} if self.session else {})}
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self.count:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def visit(self, address):
        self.events.clear()
        page = self.call("Page.navigate", url=address).get("loaderId")  # None: another anchor of the page that is there
        while page and not any(event["method"] == "Page.lifecycleEvent" and event["params"]["loaderId"] == page and event["params"]["name"] == "load"
                               for event in self.events):
            self.events.append(self.read())

    def ask(self, expression):
        return self.call("Runtime.evaluate", expression=expression, awaitPromise=True)["result"].get("value")

    def complaints(self, home):
        """Errors of the console, and requests that leave the site."""
        for event in self.events:
            params = event.get("params", {})
            if event["method"] == "Log.entryAdded" and params["entry"]["level"] == "error":
                yield f"console: {params['entry']['text']} {params['entry'].get('url', '')}"
            elif event["method"] == "Runtime.exceptionThrown":
                yield f"console: {params['exceptionDetails'].get('exception', {}).get('description', 'an exception')}"
            elif event["method"] == "Runtime.consoleAPICalled" and params["type"] == "error":
                yield f"console: {params['args']}"
            elif event["method"] == "Network.requestWillBeSent" and not params["request"]["url"].startswith((home, "data:")):
                yield f"request to {params['request']['url']}"


def look_at(browser, folder, names=None):
    """Facts of each page of a folder by its name, and complaints about them."""
    home = f"file://{folder}/"
    browser.call("Emulation.setDeviceMetricsOverride", width=PHONE, height=800, deviceScaleFactor=1, mobile=False)
    seen, wrong = {}, []
    for path in sorted(folder.rglob("*.html")):
        name = str(path.relative_to(folder))
        browser.visit(home + name)
        seen[name] = page = json.loads(browser.ask(LOOK))
        wrong += [f"{name}: {text}" for text in browser.complaints(home)]
        wrong += [f"{name}: the picture {picture} does not show" for picture in page["hidden"]]
        wrong += [f"{name}: wider than {PHONE} px: {element}" for element in page["wide"][-2:]]  # the innermost
        if page["sideways"]:
            wrong.append(f"{name}: scrolls sideways at {PHONE} px")
    for name, page in seen.items():
        for link in sorted(set(page["links"])):
            target, _, anchor = link.partition("#")
            target = target.partition("?")[0]
            if target.startswith(home):
                target = target[len(home):]
                if target not in seen:
                    wrong.append(f"{name}: links to {target}, which is not there")
                elif anchor and anchor not in seen[target]["ids"]:
                    wrong.append(f"{name}: links to {target}#{anchor}, an anchor that is not there")
            elif not re.match("https?://", target):
                wrong.append(f"{name}: links to {target}, outside of the site")
    return seen, wrong


def bytes_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if subprocess.run([ROOT / "scripts" / "install-deps", "site-test"], check=False).returncode:
            raise unittest.SkipTest("Chromium or Sphinx cannot be installed: see above")
        command = shutil.which("chromium") or shutil.which("google-chrome")
        if not command:
            raise unittest.SkipTest("there is no Chromium")
        work = tempfile.TemporaryDirectory()
        cls.addClassCleanup(work.cleanup)
        cls.work = pathlib.Path(work.name).resolve()
        cls.site = cls.work / "site"
        print(cls.build(cls.site).stdout)
        try:
            cls.browser = Browser(command)
        except OSError as error:
            raise unittest.SkipTest(f"{command} does not start here: {error}") from error
        cls.addClassCleanup(cls.browser.close)

    @staticmethod
    def build(*arguments, fails=False, **env):
        done = subprocess.run([ROOT / "scripts" / "site", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                              env={**os.environ, **env})
        if fails != (done.returncode != 0):
            raise AssertionError(done.stdout)
        return done

    def test_every_page_is_whole(self):
        seen, wrong = look_at(self.browser, self.site)
        self.assertEqual([], wrong)
        pages = subprocess.run(["git", "-C", ROOT, "ls-files", "*.md"], stdout=subprocess.PIPE, text=True, check=False).stdout.split()
        missing = {re.sub(r"\.md$", ".html", name) for name in pages if name != "README.md"} - set(seen)
        self.assertEqual(set(), missing)
        print(len(seen), "pages,", sum(len(page["links"]) for page in seen.values()), "links")

    def test_faults_are_seen(self):
        few = self.work / "few"
        (few / "docs").mkdir(parents=True)
        for name, fault, complaint in (
                ("page", '<a href="nowhere.html">', "links to docs/nowhere.html, which is not there"),
                ("anchor", '<a href="page.html#nowhere">', "links to docs/page.html#nowhere, an anchor that is not there"),
                ("folder", '<a href="/etc/passwd">', "outside of the site"),
                ("picture", '<img src="nowhere.svg">', "nowhere.svg does not show"),
                ("script", '<script src="http://127.0.0.1:9/x.js"></script>', "request to http://127.0.0.1:9/x.js"),
                ("error", "<script>nobody()</script>", "console: ReferenceError: nobody is not defined"),
                ("wide", "<pre>" + "x" * 100 + "</pre>", f"scrolls sideways at {PHONE} px"),
                ("text", '</div><div class="content" style="overflow: auto"><h1>' + "x" * 100 + "</h1>", f"wider than {PHONE} px: <h1"),
                ("cut", '<div style="overflow: hidden"><p style="width: 500px">x</p></div>', f"wider than {PHONE} px")):
            (few / "docs" / "page.html").write_text(f'<!doctype html><link rel="icon" href="data:,"><div class="content"><p>{fault}</div>')
            _, wrong = look_at(self.browser, few)
            self.assertTrue(any(complaint in text for text in wrong), f"{name}: {wrong}")
        (few / "docs" / "page.html").write_text('<!doctype html><link rel="icon" href="data:,"><p id="here"><a href="page.html#here">here</a>')
        self.assertEqual([], look_at(self.browser, few)[1])

    def test_search_needs_no_server_and_works_below_a_path(self):
        above = self.work / "server" / "docs"
        above.mkdir(parents=True)
        (above / "zoff").symlink_to(self.site)
        handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=above.parent)
        handler.log_message = handler.func.log_message = lambda *_: None
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        for home in (f"file://{self.site}/", f"http://127.0.0.1:{server.server_port}/docs/zoff/"):
            for term in ("zoff_engine_open", "NVMe", "gradient_clipping"):
                hits = self.hits(f"{home}search.html?q={term}")
                self.assertEqual([], list(self.browser.complaints(home)))
                self.assertTrue(hits, term)
                for hit in hits[:5]:
                    self.browser.visit(hit)
                    self.assertIn(term.lower(), self.browser.ask("document.querySelector('article').innerText").lower(), hit)
                    self.assertEqual([], list(self.browser.complaints(home)))
            self.assertEqual([], self.hits(f"{home}search.html?q=nosuchwordanywhere"))

    def hits(self, address):
        """The addresses that a search finds, once it says that it is over."""
        self.browser.visit(address)
        until = time.monotonic() + 60
        while self.browser.ask("document.querySelector('#search-results h2')?.innerText") != "Search Results":
            self.assertLess(time.monotonic(), until, address)
            time.sleep(0.1)
        return json.loads(self.browser.ask("JSON.stringify([...document.querySelectorAll('#search-results li a')].map(a => a.href))"))

    def test_is_dark_where_the_browser_prefers_it(self):
        for scheme, light in (("light", True), ("dark", False)):
            self.browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            self.browser.visit(f"file://{self.site}/index.html")
            colour = json.loads(self.browser.ask(LOOK))["background"]
            self.assertEqual(light, int(re.search(r"\d+", colour)[0]) > 128, colour)

    def test_the_front_page_names_version_and_purpose(self):
        text = (self.site / "index.html").read_text(encoding="utf-8")
        for word in ("zoff 0.1.0", "is a C library", "zoff_engine_open", 'id="install"'):
            self.assertIn(word, text)

    def test_two_builds_have_the_same_bytes(self):
        again = self.work / "again"
        self.build(again, PYTHONHASHSEED="7", TZ="Asia/Tokyo", SOURCE_DATE_EPOCH="1")
        self.assertEqual(bytes_of(self.site).keys(), bytes_of(again).keys())
        self.assertEqual([], [name for name, content in bytes_of(self.site).items() if bytes_of(again)[name] != content])

    def test_links_to_sources_follow_the_address(self):
        other = self.work / "other"
        self.build("--sources", "https://example.org/zoff/blob/main/", other)
        self.assertIn('href="https://example.org/zoff/blob/main/bench/results/', (other / "docs" / "PERFORMANCE.html").read_text(encoding="utf-8"))
        self.assertFalse((other / "files").exists())
        self.assertNotIn("example.org", (self.site / "docs" / "PERFORMANCE.html").read_text(encoding="utf-8"))

    def test_replaces_no_folder_that_is_not_a_site(self):
        (self.work / "home").mkdir()
        (self.work / "home" / "letter").write_text("dear")
        self.assertIn("exists and is no site: name a folder that is empty or not there", self.build(self.work / "home", fails=True).stdout)
        self.assertEqual("dear", (self.work / "home" / "letter").read_text())


if __name__ == "__main__":
    result = unittest.main(verbosity=2, exit=False).result
    sys.exit(1 if not result.wasSuccessful() else 77 if result.skipped else 0)
