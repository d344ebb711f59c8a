"""A headless Chromium that tests drive over the DevTools protocol, by the standard library alone.

The browser reads commands from one pipe and writes answers and events to another, each a line of
JSON that a NUL ends (`--remote-debugging-pipe`): no port is open that others could use, no WebSocket
is needed, and a browser whose test was killed ends by itself. It reaches this machine alone.

    with Browser(folder) as browser, browser.page(width=390, mobile=True, scheme="dark") as page:
        page.open(path_or_address)
        page.wait_for("document.querySelector('svg') !== null")
        page.click("button[data-sort=score]")
        assert page.problems == []
        page.screenshot(folder / "page.png")
"""

import base64
import contextlib
import fcntl
import itertools
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

from patience import PATIENCE

PROGRAM = "AUTORL_CHROMIUM"  # environment variable: the browser that tests use
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Tests often run as root, where there is no sandbox; containers give /dev/shm 64 MB. A page that
# another covers is drawn and asks like any other.
FLAGS = (
    *["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage"],
    *["--no-first-run", "--no-default-browser-check", "--disable-extensions"],
    *["--disable-background-networking", "--disable-component-update", "--disable-default-apps"],
    *["--disable-sync", "--disable-breakpad", "--disable-background-timer-throttling"],
    *["--disable-backgrounding-occluded-windows", "--disable-renderer-backgrounding"],
    *["--force-color-profile=srgb", "--hide-scrollbars", "--lang=en-US", "--remote-debugging-pipe"],
    "--disable-features=Translate,OptimizationHints,MediaRouter,DialMediaRouteProvider",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
# What the keyboard sends: the code of a key, its number in Windows, and the text it types.
KEYS = {"Tab": ("Tab", 9, ""), "Enter": ("Enter", 13, "\r"), " ": ("Space", 32, " ")}
CENTRE = """(selector) => {
  const element = document.querySelector(selector);
  if (!element) throw new Error(`nothing is ${selector}`);
  element.scrollIntoView({ block: "center", inline: "center", behavior: "instant" });
  const box = element.getBoundingClientRect();
  if (!box.width || !box.height) throw new Error(`${selector} is not shown`);
  return [box.left, box.top, box.width, box.height];
}"""
PAINT = """new Promise((resolve) => new PerformanceObserver((list) => {
  for (const entry of list.getEntries())
    if (entry.name === "first-contentful-paint") resolve(entry.startTime);
}).observe({ type: "paint", buffered: true }))"""


class BrowserError(AssertionError):
    """Says that the browser ended, or refused what it was told."""


def installed():
    """Return the path of a Chromium, None where there is none."""
    named = os.environ.get(PROGRAM)
    if named:
        found = shutil.which(named)
        if found is None:
            raise BrowserError(f"{PROGRAM}: {named} is no program")
        return found
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """Runs a browser with a profile of its own until it is closed.

    Args:
        folder: an empty one for its profile, its home and what it complains of.
        program: path of the browser; without, the one that is installed.
    """

    def __init__(self, folder, program=None):
        self.folder = Path(folder)
        self._ids = itertools.count(1)
        self._answers = {}
        self._pages = {}
        self._news = threading.Condition()
        self._ended = False
        commands, self._commands = _pipe()
        self._events, events = _pipe()
        line = [program or installed(), *FLAGS, f"--user-data-dir={self.folder / 'profile'}"]
        # Its configuration and caches are not the user's.
        homes = ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")
        environment = {**os.environ, **dict.fromkeys(homes, str(self.folder))}
        self._complaints = self.folder / "stderr"
        with self._complaints.open("wb") as complaints:
            self._process = subprocess.Popen(
                # The browser takes its pipes at these numbers, which Popen cannot give.
                ["bash", "-c", f'exec "$@" 3<&{commands} 4>&{events}', "bash", *line],
                pass_fds=(commands, events),
                stdin=subprocess.DEVNULL,
                stdout=complaints,
                stderr=complaints,
                env=environment,
                start_new_session=True,
            )
        os.close(commands)
        os.close(events)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    @property
    def version(self):
        """Name and version of the browser."""
        return self.call("Browser.getVersion")["product"]

    def page(self, *, width=1280, height=800, mobile=False, scheme="light"):
        """Return a new empty page, which shares no cookies and no cache with others."""
        return Page(self, width, height, mobile, scheme)

    def call(self, method, session=None, **params):
        """Return the answer to a command of the protocol, to a page where a session is given."""
        number = next(self._ids)
        message = {"id": number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        try:
            while data:
                data = data[os.write(self._commands, data) :]
        except OSError as error:
            raise BrowserError(f"the browser has ended: {self._last_words()}") from error
        self.wait(lambda: number in self._answers, method)
        answer = self._answers.pop(number)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def wait(self, is_so, what, seconds=PATIENCE):
        """Wait until something is so that the browser's messages make so."""
        with self._news:
            self._news.wait_for(lambda: self._ended or is_so(), seconds)
            if is_so():
                return
        why = f"it has ended: {self._last_words()}" if self._ended else f"none in {seconds:g} s"
        raise BrowserError(f"no answer of the browser to {what}: {why}")

    def close(self):
        """End the browser and all its processes."""
        if self._process.poll() is None and not self._ended:
            try:
                self.call("Browser.close")
                self._process.wait(30)
            except (BrowserError, subprocess.TimeoutExpired):
                pass  # ended below
        os.close(self._commands)
        with contextlib.suppress(ProcessLookupError):  # where all have gone
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        os.close(self._events)

    def _read(self):
        rest = b""
        while data := os.read(self._events, 2**16):
            *messages, rest = (rest + data).split(b"\0")
            for text in messages:
                message = json.loads(text)
                with self._news:
                    if "id" in message:
                        self._answers[message["id"]] = message
                    elif message.get("sessionId") in self._pages:
                        page = self._pages[message["sessionId"]]
                        page._hear(message["method"], message["params"])
                    self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def _last_words(self):
        return self._complaints.read_text(errors="replace")[-2000:]


class Page:
    """A page of the browser, and all that it complained of.

    Attributes:
        problems: console errors, uncaught exceptions, failed requests and answers of 400 or more,
            in their order; a test asserts that there are none.
        requests: addresses that were asked for, those of the page included.
    """

    def __init__(self, browser, width, height, mobile, scheme):
        self._browser = browser
        self.problems = []
        self.requests = []
        self._addresses = {}
        self._loaded = set()  # names of documents
        self._context = browser.call("Target.createBrowserContext")["browserContextId"]
        target = browser.call(
            "Target.createTarget", url="about:blank", browserContextId=self._context
        )
        self._target = target["targetId"]
        attached = browser.call("Target.attachToTarget", targetId=self._target, flatten=True)
        self._session = attached["sessionId"]
        browser._pages[self._session] = self
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call("Page.setLifecycleEventsEnabled", enabled=True)
        self.resize(width, height, mobile)
        self.emulate(scheme)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def call(self, method, **params):
        """Return the answer to a command of the DevTools protocol."""
        return self._browser.call(method, self._session, **params)

    def close(self):
        """Close the page, and forget its cookies."""
        self._browser._pages.pop(self._session, None)
        self._browser.call("Target.disposeBrowserContext", browserContextId=self._context)

    def resize(self, width, height=800, mobile=False):
        """Give the page a window of so many CSS pixels, which are those of screenshots too."""
        size = {"width": width, "height": height, "mobile": mobile}
        self.call("Emulation.setDeviceMetricsOverride", deviceScaleFactor=1, **size)
        self.call("Emulation.setTouchEmulationEnabled", enabled=mobile)

    def emulate(self, scheme="light", media=""):
        """Show the page in a colour scheme, or on paper (`media="print"`)."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)

    def at_start(self, script):
        """Run a script in every document that is opened from now on, before its own."""
        self.call("Page.addScriptToEvaluateOnNewDocument", source=script)

    def open(self, place):
        """Open an address or a file, and wait until it has loaded."""
        address = place.resolve().as_uri() if isinstance(place, Path) else place
        answer = self.call("Page.navigate", url=address)
        if "errorText" in answer:
            raise BrowserError(f"{address}: {answer['errorText']}")
        # By its name: the empty page that was there may say only now that it has loaded.
        self._browser.wait(lambda: answer["loaderId"] in self._loaded, f"opening {address}")

    def evaluate(self, expression):
        """Return the value of a JavaScript expression, awaited where it is a promise."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise BrowserError(f"{expression[:200]}: {_exception(answer['exceptionDetails'])}")
        return answer["result"].get("value")

    def wait_for(self, expression, seconds=PATIENCE):
        """Return the value of an expression once it is true.

        A page that makes place for another meanwhile is asked again.
        """
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if value := self.evaluate(expression):
                    return value
            except BrowserError as error:
                if "navigated or closed" not in str(error):
                    raise
            time.sleep(0.02)
        raise BrowserError(f"not so in {seconds:g} seconds: {expression[:500]}")

    def text(self, selector="body"):
        """Return the text of an element as it is shown."""
        return self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText")

    def click(self, selector, x=0.5, y=0.5):
        """Click on an element, at shares of its width and height, whatever lies there."""
        with self.pressed(selector, x, y):
            pass

    @contextlib.contextmanager
    def pressed(self, selector, x=0.5, y=0.5):
        """Hold the button of the mouse down on an element, as a click that takes its time."""
        place = self.hover(selector, x, y)
        self._mouse("mousePressed", *place, "left")
        yield
        self._mouse("mouseReleased", *place, "left")

    def hover(self, selector, x=0.5, y=0.5):
        """Move the pointer over an element, to shares of its width and height; return the place."""
        left, top, width, height = self.evaluate(f"({CENTRE})({json.dumps(selector)})")
        place = (left + x * width, top + y * height)
        self._mouse("mouseMoved", *place)
        return place

    def press(self, key):
        """Press a key of `KEYS`."""
        code, number, text = KEYS[key]
        event = {"key": key, "code": code, "windowsVirtualKeyCode": number}
        typed = {"text": text} if text else {}
        kind = "keyDown" if text else "rawKeyDown"
        self.call("Input.dispatchKeyEvent", type=kind, **event, **typed)
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def first_paint(self):
        """Return milliseconds from the request until the first text or picture was painted."""
        return self.evaluate(PAINT)

    def screenshot(self, path, full=False):
        """Write what is shown as a PNG file; `full` has all of the page, however long."""
        clip = {}
        if full:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"clip": {**size, "scale": 1}, "captureBeyondViewport": True}
        picture = self.call("Page.captureScreenshot", format="png", **clip)
        Path(path).write_bytes(base64.b64decode(picture["data"]))

    def outside(self):
        """Return the addresses asked for that are neither files nor on this machine."""
        inside = ("file:", "data:", "blob:", "about:", "http://127.0.0.1:")
        return [address for address in self.requests if not address.startswith(inside)]

    def _mouse(self, kind, x, y, button="none"):
        more = {"clickCount": 1} if button == "left" else {}
        more["buttons"] = int(kind == "mousePressed")
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, **more)

    def _hear(self, event, params):
        """Take an event of the browser; called by the thread that reads its pipe."""
        if event == "Page.lifecycleEvent":
            if params["name"] == "load":
                self._loaded.add(params["loaderId"])
        elif event == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            texts = (value.get("value", value.get("description")) for value in params["args"])
            self.problems.append(f"console: {' '.join(map(str, texts))}")
        elif event == "Runtime.exceptionThrown":
            self.problems.append(f"exception: {_exception(params['exceptionDetails'])}")
        elif event == "Log.entryAdded":  # such as a script that the policy of the page refused
            entry = params["entry"]
            if entry["level"] == "error" and entry["source"] != "network":
                self.problems.append(f"log: {entry['text']}")
        elif event == "Network.requestWillBeSent":
            self._addresses[params["requestId"]] = params["request"]["url"]
            self.requests.append(params["request"]["url"])
        elif event == "Network.responseReceived":
            response = params["response"]
            if response["status"] >= 400:
                self.problems.append(f"answer: {response['status']} of {response['url']}")
        elif event == "Network.loadingFailed" and not params.get("canceled"):
            address = self._addresses.get(params["requestId"], "?")
            self.problems.append(f"request: {params['errorText']} of {address}")


def _pipe():
    """Make a pipe whose ends have numbers that nothing else takes in the browser."""
    ends = []
    for end in os.pipe():
        ends.append(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20))
        os.close(end)
    return ends


def _exception(details):
    thrown = details.get("exception", {})
    return thrown.get("description") or str(thrown.get("value", details["text"]))
