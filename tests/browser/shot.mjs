// node shot.mjs PAGE OUT [light|dark] [width] [height|full] [selector to click]
// A picture of a page. Environment: CHROMIUM, the browser.
import { launch, open } from './launch.mjs';

const [file, out, theme = 'light', width = '1200', height = 'full', click = ''] =
  process.argv.slice(2);
const browser = await launch();
const page = await browser.newPage({
  viewport: { width: Number(width), height: Number(height) || 900 },
  colorScheme: theme,
});
await open(page, file);
if (click) {
  await page.locator(click).first().click();
  await page.evaluate(() => window.scrollTo(0, 0));
}
await page.screenshot({ path: out, fullPage: height === 'full' });
await browser.close();
