"""results/report.html: tables, curves, figures and claims on one page that works offline."""
