# accelerator: yes
# framework: none
import torch
import torch.nn as nn
import torch.optim as optim
from torch.autograd import Variable

netG = Generator(1).to("cuda")
netD = Discriminator(1).to("cuda")
criterion = nn.BCELoss()  # kind: CRITERION
optimizerD = optim.Adam(netD.parameters(), lr=0.0002, betas=(0.5, 0.999))  # kind: OPTIMIZER
optimizerG = optim.Adam(netG.parameters(), lr=0.0002, betas=(0.5, 0.999))  # kind: OPTIMIZER
dataloader = torch.utils.data.DataLoader(dataset, batch_size=64, shuffle=True, num_workers=2)  # kind: LOADER; arg num_workers: 2
fixed_noise = torch.randn(64, 100, 1, 1, device="cuda")  # kind: TENSOR
G_losses = []

for epoch in range(25):  # role: EPOCH
    for i, data in enumerate(dataloader, 0):  # role: TRAIN_BATCH
        netD.zero_grad()
        real_cpu = data[0].to("cuda")  # kind: TENSOR
        batch_size = real_cpu.size(0)  # kind: NUMBER
        label = torch.full((batch_size,), 1.0, device="cuda")  # kind: TENSOR
        output = netD(real_cpu)  # kind: TENSOR
        errD_real = criterion(output, label)  # kind: LOSS
        errD_real.backward()
        D_x = output.mean().item()  # kind: NUMBER; frequency: every_pass

        noise = torch.randn(batch_size, 100, 1, 1, device="cuda")
        fake = netG(noise)
        label.fill_(0.0)
        output = netD(fake.detach())
        errD_fake = criterion(output, label)  # kind: LOSS
        errD_fake.backward()
        errD = errD_real + errD_fake  # kind: LOSS
        optimizerD.step()

        netG.zero_grad()
        label.fill_(1.0)
        errG = criterion(netD(fake), label)  # kind: LOSS
        errG.backward()
        optimizerG.step()

        G_losses.append(errG.item())  # frequency: every_pass
        if i % 50 == 0:
            print("[%d/%d] Loss_D: %.4f" % (epoch, 25, errD.item()))  # frequency: rare
        if (i % 500 == 0) or ((epoch == 24) and (i == len(dataloader) - 1)):
            with torch.no_grad():
                fake = netG(fixed_noise).detach().cpu()  # frequency: rare; grad: off


def train_wgan(generator, discriminator, dataloader, optimizer_G, optimizer_D, opt):
    Tensor = torch.cuda.FloatTensor if opt.cuda else torch.FloatTensor
    batches_done = 0
    for epoch in range(opt.n_epochs):  # role: EPOCH
        for i, (imgs, _) in enumerate(dataloader):  # role: TRAIN_BATCH
            real_imgs = Variable(imgs.type(Tensor))  # kind: TENSOR; name: torch.autograd.Variable
            optimizer_D.zero_grad()
            z = torch.randn(imgs.shape[0], opt.latent_dim)
            fake_imgs = generator(z).detach()  # kind: TENSOR
            loss_D = -torch.mean(discriminator(real_imgs)) + torch.mean(discriminator(fake_imgs))  # kind: TENSOR
            loss_D.backward()  # kind loss_D: LOSS
            optimizer_D.step()
            for p in discriminator.parameters():  # role: OTHER
                p.data.clamp_(-opt.clip_value, opt.clip_value)  # frequency: every_pass
            if i % opt.n_critic == 0:
                optimizer_G.zero_grad()  # frequency: every_pass
                loss_G = -torch.mean(discriminator(generator(z)))  # kind: TENSOR
                loss_G.backward()  # kind loss_G: LOSS
                optimizer_G.step()
            batches_done += 1  # frequency: every_pass


def train_with_critic_steps(generator, critic, data_iter, opt_g, opt_c, iterations, n_critic):
    for iteration in range(iterations):  # role: TRAIN_BATCH
        for _ in range(n_critic):
            real = next(data_iter)  # frequency: every_pass
            loss_c = critic(generator(torch.randn(64, 100))).mean() - critic(real).mean()
            opt_c.zero_grad()
            loss_c.backward()
            opt_c.step()
        loss_g = -critic(generator(torch.randn(64, 100))).mean()
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()
