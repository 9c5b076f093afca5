"""The site: pages of the library set side by side, made from its sources.  `python docs/build.py --out DIR`."""
