"""Pictures for the documents: the dashboard, the terminal, a notebook and the site, taken with a headless Chromium."""
