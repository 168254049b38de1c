"""Thumbnails are made of images that were decoded at full size, by more threads than there are processors.

cites: RolnickLab/antenna#1389, thumbor/thumbor#989
state: no cpu
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: PHOTO thumbnail_size THUMBNAIL CAPTION
numbers: SIDE=2700..3000
load: THUMBNAIL callers 5..6 calls 3..4
load: CAPTION callers 2 calls 6..8 pause 10..30
mend: compute-less or cache or to-process
thing: thumbnail_size or resize
"""

import asyncio

from PIL import Image

PHOTO = FOLDER / "photo.jpg"
Image.effect_noise((SIDE // 4, SIDE // 4), 60).resize((SIDE, SIDE)).convert("RGB").save(PHOTO, quality=90)


def thumbnail_size(text: str) -> str:
    with Image.open(PHOTO) as photo:
        #: mended
        photo.draft("RGB", (320, 320))
        #: end
        small = photo.resize((160, 160), Image.Resampling.LANCZOS)  #!
    return f"{text}: {small.width} x {small.height}"


@server.tool()
async def THUMBNAIL(text: str) -> str:
    """Makes the thumbnail of the photo."""
    return await asyncio.to_thread(thumbnail_size, text)  #!


@server.tool()
async def CAPTION(text: str) -> str:
    """Names the photo."""
    return f"{text}: {PHOTO.name}"
