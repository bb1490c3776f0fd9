"""The HTML report: pictures as plain data, and the templates that draw them."""
