"""Requests of schemathesis come from many addresses of loopback: the server refuses the eleventh wrong token of one address in a minute (S-22), and so many are sent."""

import itertools

import urllib3.util.connection as connection

create = connection.create_connection
addresses = itertools.cycle(f"127.0.0.{number}" for number in range(2, 255))


def create_from_another(address, *args, **options):
    options["source_address"] = (next(addresses), 0)
    return create(address, *args, **options)


connection.create_connection = create_from_another
