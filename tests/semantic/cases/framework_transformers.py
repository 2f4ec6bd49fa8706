# framework: transformers
from datasets import load_dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments

model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased")  # kind: MODULE
training_args = TrainingArguments(output_dir="out", num_train_epochs=3)
trainer = Trainer(model=model, args=training_args, train_dataset=load_dataset("imdb")["train"])
trainer.train()
