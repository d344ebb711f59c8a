"""Charts and pages, declared as values, drawn by Vega-Lite and Jinja2.

A chart is declared once (`chart`). `vega` makes its Vega-Lite specification, which the browser
draws on a page (`document`) and vl-convert in a file.
"""
