"""The input of an application: how far its topics are read, and what becomes of topics that grow or are lost."""
