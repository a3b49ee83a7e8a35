"""The documentation, and in `docs._site` what builds the site of it."""
