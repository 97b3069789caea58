"""Lets several processes use one store: its owner runs the turns, the attached send their inputs by a link."""
