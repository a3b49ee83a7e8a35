"""Data: toy distributions with exact densities (`oism.data.toys`), readers (`oism.data.files`)."""
