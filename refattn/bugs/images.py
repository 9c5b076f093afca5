"""Planted bugs of convolutions and of the image tasks and networks: file, text, text to put there, sentence."""

CONV = "layers/convolution.py"

ROWS = (
    (CONV, "image[:, padding:padding + high, padding:padding + wide] = x", "image[:, :high, :wide] = x",
     "all padding lies at the bottom and at the right"),
    (CONV, "y[inside] = blocks[place].transpose(0, 1, 3, 2, 4, 5)",
     "y[inside] = blocks[place].transpose(0, 1, 3, 4, 2, 5)[:, :, :, :y[inside].shape[3], :y[inside].shape[4]]",
     "rows and columns are exchanged within every window"),
    (CONV, "blocks[place] += dy[inside].transpose(0, 1, 3, 2, 4, 5)",
     "blocks[place] = dy[inside].transpose(0, 1, 3, 2, 4, 5)",
     "a pixel has the gradient of the last window that it lies in, not of all"),
    (CONV, "return image[:, padding:padding + shape[1], padding:padding + shape[2]] * 1",
     "return image[:, :shape[1], :shape[2]] * 1", "the gradient of the image is shifted by the padding"),
)
