"""Which addresses a request of authorization may go to."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given, strategies as st
from refusals import refused

from trio_mcp.auth.addresses import Reach, check_address, check_url, is_loopback, is_public
from trio_mcp.errors import AuthorizationError, AuthorizationErrorKind

PUBLIC_ADDRESSES = ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::"]
OTHER_ADDRESSES = [
    "0.0.0.0", "10.0.0.1", "100.64.0.1", "127.0.0.1", "127.8.8.8", "169.254.169.254", "172.16.0.1", "192.0.2.1", "192.168.0.1",
    "192.0.0.8", "192.0.0.192",
    "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
    "2002:7f00:1::", "2002:a00:1::", "2001:0:7f00:1::", "64:ff9b::a00:1", "64:ff9b::7f00:1", "64:ff9b:1::1", "fc00::1",
    "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "2001:db8::1",
]  # fmt: skip


@pytest.mark.parametrize("address", PUBLIC_ADDRESSES)
def test_a_public_address_may_be_reached(address: str) -> None:
    assert is_public(ip_address(address))
    check_address(address, "as.example", Reach.PUBLIC)


@pytest.mark.parametrize("reach", [Reach.PUBLIC, Reach.LOOPBACK])
def test_no_other_address_may_be_reached_under_any_name(reach: Reach) -> None:
    for address in OTHER_ADDRESSES:
        with pytest.raises(AuthorizationError) as caught:
            check_address(address, "as.example", reach)
        assert caught.value.kind is AuthorizationErrorKind.ADDRESS, address


@given(st.integers(0, 2**32 - 1))
def test_an_address_of_ipv6_with_one_of_ipv4_in_it_is_judged_by_that(number: int) -> None:
    public = is_public(IPv4Address(number))
    assert is_public(IPv6Address((0xFFFF << 32) | number)) is public
    assert is_public(IPv6Address((0x2002 << 112) | (number << 80))) is public
    assert is_public(IPv6Address((0x64_FF9B << 96) | number)) is public


def test_what_a_program_names_itself_may_be_anywhere() -> None:
    for address in (*PUBLIC_ADDRESSES, *OTHER_ADDRESSES):
        check_address(address, "as.internal", Reach.CONFIGURED)


def test_localhost_is_this_machine_whatever_the_hosts_file_says() -> None:
    check_address("127.0.0.1", "localhost", Reach.LOOPBACK)
    for reach, address in ((Reach.LOOPBACK, "8.8.8.8"), (Reach.CONFIGURED, "10.0.0.1"), (Reach.PUBLIC, "127.0.0.1")):
        with pytest.raises(AuthorizationError):
            check_address(address, "localhost", reach)
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "localhost.example", "10.0.0.1")] == [
        True, True, True, False, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("url", "reaches"),
    [
        ("https://as.example/x", {Reach.PUBLIC, Reach.LOOPBACK, Reach.CONFIGURED}),
        ("http://127.0.0.1:9000/x", {Reach.LOOPBACK, Reach.CONFIGURED}),
        ("http://localhost/x", {Reach.LOOPBACK, Reach.CONFIGURED}),
        ("http://[::1]/x", {Reach.LOOPBACK, Reach.CONFIGURED}),
        ("https://localhost/x", {Reach.LOOPBACK, Reach.CONFIGURED}),
        ("https://10.0.0.1/x", {Reach.CONFIGURED}),
        ("http://as.example/x", set()),
        ("http://10.0.0.1/x", set()),
        ("http://0177.0.0.1/x", set()),
        ("http://[::ffff:127.0.0.1]/x", set()),
        ("file:///etc/passwd", set()),
        ("javascript:alert(1)", set()),
        ("https://u:p@as.example", set()),
    ],
)
def test_a_url_may_be_requested_if_its_text_says_nothing_against_it(url: str, reaches: set[Reach]) -> None:
    for reach in Reach:
        if reach in reaches:
            check_url(url, reach)
        else:
            with refused(AuthorizationErrorKind.ADDRESS):
                check_url(url, reach)
