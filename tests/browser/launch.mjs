// A headless chromium with a fresh profile that speaks to nobody, and a page of a file in it.
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { chromium } from 'playwright-core';

const FLAGS = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

export const launch = () =>
  chromium.launch({ executablePath: process.env.CHROMIUM || '/usr/bin/chromium', args: FLAGS });

/** Open a page from file:// and wait until it has drawn itself. */
export const open = async (page, file) => {
  await page.goto(pathToFileURL(path.resolve(file)).href);
  await page.waitForSelector('html[data-ready=yes]', { timeout: 60000 });
};
