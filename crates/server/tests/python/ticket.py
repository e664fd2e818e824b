"""Verifies a ticket with PyJWT, which knows nothing of Tenure.

Usage: ticket.py TICKET KEY_SET FORGED. Prints the claims of the ticket; fails if the forged ticket verifies too.
"""

import json
import sys

import jwt

ticket, keys, forged = sys.argv[1:]
keys = json.loads(keys)
key = jwt.PyJWKSet.from_dict(keys)[jwt.get_unverified_header(ticket)["kid"]]


def verified(text):
    return jwt.decode(text, key, algorithms=["EdDSA"], issuer=keys["cluster"])


claims = verified(ticket)
try:
    verified(forged)
except jwt.InvalidSignatureError:
    print(json.dumps(claims))
else:
    sys.exit("a forged ticket was believed")
