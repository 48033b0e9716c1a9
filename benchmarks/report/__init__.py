"""The report: figures of all rounds, medians and spread, goals, tables and plots."""
