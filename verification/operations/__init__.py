"""Checks on a real application: can people operate it who did not write it?"""
