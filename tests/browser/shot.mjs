// node shot.mjs PAGE OUT [light|dark] [width] [height|full] [selector to click]: a picture of a page.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import path from 'node:path';

const require = createRequire(path.join(path.resolve(process.env.GOLDIMASK_PLAYWRIGHT || '.'), 'package.json'));
const { chromium } = require('playwright-core');
const [file, out, theme = 'light', width = '1200', height = 'full', click = ''] = process.argv.slice(2);
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM || '/usr/bin/chromium',
  args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-background-networking'],
});
const page = await browser.newPage({ viewport: { width: Number(width), height: Number(height) || 900 }, colorScheme: theme });
await page.goto(pathToFileURL(path.resolve(file)).href);
await page.waitForSelector('html[data-ready=yes]', { timeout: 60000 });
if (click) { await page.locator(click).first().click(); await page.evaluate(() => window.scrollTo(0, 0)); }
await page.screenshot({ path: out, fullPage: height === 'full' });
await browser.close();
