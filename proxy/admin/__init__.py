"""The door to the operators: what the admin listener answers.

`door` dispatches, `probes` say alive and ready, `guard` decides who may see more, `api` is what they see, as JSON.
"""
