# framework: fastai
from fastai.vision.all import *

dls = ImageDataLoaders.from_folder(path, valid_pct=0.2)
learn = vision_learner(dls, resnet34, metrics=error_rate)
learn.fine_tune(1)
