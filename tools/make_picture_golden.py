#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write pictures of every kind that ithaca reads, and the pixels that Pillow gives for them.

    tools/make_picture_golden.py tests/golden/pictures tests/media/corpus

For each picture, such as grey.png, the file grey.png.rgb holds its pixels [height, width, 3], upright. A picture has 24 x 40
pixels; pictures of orientation 5 to 8 have 40 x 24, and odd_* have 23 x 39. The second folder gets broken pictures, with
sizes and checksums that fit.
"""
import os
import struct
import sys
import zlib

import numpy as np
from PIL import Image, ImageOps

folder = sys.argv[1]
H, W = 24, 40
os.makedirs(folder, exist_ok=True)
y, x = np.mgrid[0:H, 0:W]
smooth = np.stack([x * 255 // (W - 1), y * 255 // (H - 1), 255 - (x + y) * 255 // (H + W - 2)], 2).astype(np.uint8)
rng = np.random.default_rng(3)
noise = rng.integers(0, 256, (H, W, 3), dtype=np.uint8)


def save(name, image, **options):
    path = os.path.join(folder, name)
    image.save(path, **options)
    expect(name)


def expect(name, pixels=None):
    path = os.path.join(folder, name)
    if pixels is None:
        pixels = np.array(ImageOps.exif_transpose(Image.open(path)).convert("RGB"))
    open(path + ".rgb", "wb").write(pixels.tobytes())


PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))  # Adam7


def write_png(name, depth, kind, rows, interlaced=0):
    chunk = lambda tag, data: struct.pack(">I", len(data)) + tag + data + struct.pack(">I", zlib.crc32(tag + data))
    data = b"".join(b"\0" + r.tobytes() for r in rows)
    open(os.path.join(folder, name), "wb").write(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", W, H, depth, kind, 0, 0, interlaced)) +
        chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b""))


alpha = np.dstack([noise, rng.integers(0, 256, (H, W), dtype=np.uint8)])
save("rgb.png", Image.fromarray(noise))
save("alpha.png", Image.fromarray(alpha))
save("grey.png", Image.fromarray(noise[..., 0]))
save("grey_alpha.png", Image.fromarray(alpha).convert("LA"))
save("palette.png", Image.fromarray(smooth).quantize(37))
save("clear_palette.png", Image.fromarray(smooth).quantize(37), transparency=4)
save("one_bit.png", Image.fromarray(noise[..., 0]).convert("1"))
wide = (noise.astype(np.uint16) << 8) + noise[::-1].astype(np.uint16)
write_png("rgb16.png", 16, 2, [r.astype(">u2") for r in wide])
expect("rgb16.png", (wide >> 8).astype(np.uint8))
write_png("grey16.png", 16, 0, [r[:, 0].astype(">u2") for r in wide])
expect("grey16.png", np.repeat((wide[..., :1] >> 8), 3, 2).astype(np.uint8))
write_png("interlaced.png", 8, 2, [r for x0, y0, dx, dy in PASSES for r in smooth[y0::dy, x0::dx]], 1)
expect("interlaced.png", smooth)
save("rgb.jpg", Image.fromarray(smooth), quality=95)
save("full.jpg", Image.fromarray(smooth), quality=95, subsampling=0)
save("progressive.jpg", Image.fromarray(smooth), quality=95, progressive=True)
save("grey.jpg", Image.fromarray(smooth[..., 0]), quality=95)
save("cmyk.jpg", Image.fromarray(smooth).convert("CMYK"), quality=95)
save("rgb.webp", Image.fromarray(smooth), quality=95)
save("lossless.webp", Image.fromarray(noise), lossless=True)
save("alpha.webp", Image.fromarray(np.dstack([smooth, alpha[..., 3]])), quality=95)
odd = Image.fromarray(noise[::6, ::6]).resize((W - 1, H - 1), Image.BICUBIC)
save("odd_420.jpg", odd, quality=95, subsampling=2)
save("odd_422.jpg", odd, quality=95, subsampling=1)
save("odd_420.webp", odd, quality=95)
for orientation in range(1, 9):
    exif = Image.Exif()
    exif[0x0112] = orientation
    for kind in ("png", "jpg", "webp"):
        options = {"jpg": dict(quality=95, subsampling=0), "webp": dict(lossless=True), "png": {}}[kind]
        save(f"turned_{kind}_{orientation}.{kind}", Image.fromarray(smooth), exif=exif, **options)
Image.fromarray(smooth).save(os.path.join(folder, "animated.webp"), save_all=True, append_images=[Image.fromarray(noise)])

# ---- Broken pictures


def read(name):
    return open(os.path.join(folder, name), "rb").read()


def broken(name, data):
    open(os.path.join(sys.argv[2], name), "wb").write(data)


def png_chunk(tag, data, wrong=0):
    return struct.pack(">I", len(data)) + tag + data + struct.pack(">I", zlib.crc32(tag + data) ^ wrong)


def png_file(width=W, height=H, depth=8, kind=0, pack=0, data=None, wrong=0):
    data = zlib.compress(bytes((W + 1) * H)) if data is None else data
    head = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, kind, pack, 0, 0))
    body = png_chunk(b"IDAT", data, wrong) if data else b""
    return b"\x89PNG\r\n\x1a\n" + head + body + png_chunk(b"IEND", b"")


def jpeg_without(data, mark):
    at = data.index(bytes([0xFF, mark]))
    return data[:at] + data[at + 2 + struct.unpack(">H", data[at + 2:at + 4])[0]:]


def webp_file(*chunks):
    body = b"WEBP" + b"".join(t + struct.pack("<I", len(d)) + d + bytes(len(d) % 2) for t, d in chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


rows = zlib.compress(noise[..., 0].tobytes())
broken("png_no_data", png_file(data=b""))
broken("png_wrong_checksum", png_file(wrong=1))
broken("png_half_a_stream", png_file(data=rows[:len(rows) // 2]))
broken("png_half_the_rows", png_file(data=zlib.compress(bytes((W + 1) * H // 2))))
broken("png_wrong_sum_of_rows", png_file(data=zlib.compress(bytes((W + 1) * H))[:-1] + b"?"))
broken("png_no_stream", png_file(data=b"no zlib stream"))
broken("png_width_0", png_file(width=0))
broken("png_height_0", png_file(height=0))
broken("png_most_pixels", png_file(width=2**31 - 1, height=2**31 - 1))
broken("png_depth_3", png_file(depth=3))
broken("png_kind_5", png_file(kind=5))
broken("png_other_packing", png_file(pack=7))
broken("png_two_bits_of_colour", png_file(kind=2, depth=2))
broken("png_header_alone", b"\x89PNG\r\n\x1a\n" + png_chunk(b"IEND", b""))
jpeg, progressive, grey = read("rgb.jpg"), read("progressive.jpg"), read("grey.jpg")
broken("jpeg_no_frame", jpeg_without(jpeg, 0xC0))
broken("jpeg_no_quantisation", jpeg_without(jpeg, 0xDB))
broken("jpeg_no_scan", jpeg[:jpeg.index(b"\xff\xda")] + b"\xff\xd9")
broken("jpeg_half_a_scan", jpeg[:len(jpeg) // 2] + b"\xff\xd9")
broken("jpeg_end_of_scan", jpeg[:-4] + b"\xff\xd9")
broken("jpeg_no_end", jpeg[:-2])
broken("jpeg_last_scan", progressive[:progressive.rindex(b"\xff\xda")] + b"\xff\xd9")
broken("jpeg_first_scan_alone", progressive[:progressive.index(b"\xff\xc4", progressive.index(b"\xff\xda"))] + b"\xff\xd9")
broken("jpeg_width_0", grey.replace(struct.pack(">HH", H, W), struct.pack(">HH", H, 0)))
broken("jpeg_arithmetic", jpeg.replace(b"\xff\xc0", b"\xff\xc9"))
lossy, lossless = read("rgb.webp")[20:], read("lossless.webp")[20:]
broken("webp_no_data", webp_file((b"VP8X", bytes(4) + struct.pack("<I", W - 1)[:3] + struct.pack("<I", H - 1)[:3])))
broken("webp_half_a_picture", webp_file((b"VP8 ", lossy[:len(lossy) // 2])))
broken("webp_half_lossless", webp_file((b"VP8L", lossless[:len(lossless) // 2])))
broken("webp_end_of_lossless", webp_file((b"VP8L", lossless[:-6])))
broken("webp_other_signature", webp_file((b"VP8L", b"?" + lossless[1:])))
broken("webp_no_key_frame", webp_file((b"VP8 ", bytes([lossy[0] | 1]) + lossy[1:])))
broken("webp_long_partition", webp_file((b"VP8 ", lossy[:1] + b"\xff\xff" + lossy[3:])))
broken("webp_long_chunk", read("rgb.webp")[:16] + struct.pack("<I", 2**31) + lossy)
broken("webp_no_end", read("lossless.webp")[:-2])
