"""A plugin for the pytest of curl's tests/http: the plain HTTP proxy is Tidegate, and the first site is asked for by a
name that Tidegate can look up (the test's certificates are for it too)."""

import os

from testenv import Env

authority_for = Env.authority_for


def by_a_known_name(env, domain, alpn_proto=None):
    """`localhost` in place of a name that only curl's own options resolve."""
    return authority_for(env, "localhost" if domain == env.domain1 else domain, alpn_proto)


Env.proxy_port = property(lambda _: int(os.environ["TIDEGATE_PORT"]))
Env.authority_for = by_a_known_name
