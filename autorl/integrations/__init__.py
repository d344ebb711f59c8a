"""Parts of this package as parts of others.

Every module needs the library it is named after.
"""
