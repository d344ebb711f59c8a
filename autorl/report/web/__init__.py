"""Shows studies as a local web page, live and read-only.

`pages` makes HTML of a study by the components of the report, `site` says what stands at which
address, `server` is the only file that knows HTTP. `page.js` puts what has changed in its place.
"""
