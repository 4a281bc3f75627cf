"""URIs and the templates of RFC 6570."""
