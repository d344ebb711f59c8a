"""Shows studies as a local web page, live and read-only.

The page is the report's, which asks again and again what has changed. `site` says what stands at
which address, `server` is the only file that knows HTTP.
"""
