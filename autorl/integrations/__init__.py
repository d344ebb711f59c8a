"""Parts of this package as parts of others: each module needs the library it is named after."""
