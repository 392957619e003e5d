"""The paper as data: its runs, published numbers, tables, figures and claims."""
