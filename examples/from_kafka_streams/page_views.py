"""Confluent's page views by region, in Penstock: views joined with the profiles of their users, counted in hopping windows."""

from __future__ import annotations

from dataclasses import dataclass

from penstock import App, StreamsBuilder, Windowed, hopping


@dataclass(frozen=True)
class PageView:
    user: str
    page: str


@dataclass(frozen=True)
class UserProfile:
    region: str
    experience: str


@dataclass(frozen=True)
class RegionalView:
    user: str
    page: str
    region: str


def regional(view: PageView, region: str | None) -> RegionalView:
    return RegionalView(view.user, view.page, region or "unknown")


def readable(region: Windowed[str], _: int) -> str:
    """A windowed key as text, for a console."""
    return f"[{region.key}@{region.start}/{region.end}]"


builder = StreamsBuilder()
views = builder.stream("PageViews", key=str, value=PageView).select_key(lambda _, view: view.user, key=str)
regions = builder.table("UserProfiles", key=str, value=UserProfile).map_values(lambda profile: profile.region)
by_region = (
    views.left_join(regions, regional)
    .map(lambda _, view: (view.region, view), key=str, value=RegionalView)
    .group_by_key()
    .windowed_by(hopping("5m", advance="1m", grace="1d"))
    .count(store="views-by-region")
)
by_region.to_stream(readable, key=str).to("PageViewsByRegion", value=int)
app = App("pageview-region-example", builder.build())

if __name__ == "__main__":
    app.run()
