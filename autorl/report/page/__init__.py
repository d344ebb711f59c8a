"""Parts of a self-contained page: charts as SVG, tables, style and script.

Everything that comes from a study or a landscape is escaped here. The script only moves, hides and
sorts what is there: it makes no HTML.
"""
