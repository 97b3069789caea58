// Looks at a page as a reader sees it. tests/report/test_report_browser.py calls these; each returns a list of
// findings in words, which is empty for a good page.
(() => {
  const words = text => JSON.stringify(text.trim().replace(/\s+/g, " ").slice(0, 40));
  const box = r => `${Math.round(r.left)}–${Math.round(r.right)} × ${Math.round(r.top)}–${Math.round(r.bottom)}`;
  const seen = e => e.checkVisibility({opacityProperty: true, visibilityProperty: true}) && !e.closest(".unseen, .skip");

  document.querySelectorAll("details").forEach(d => { d.open = true; });
  document.head.append(Object.assign(document.createElement("style"), {textContent: "* {pointer-events: auto !important}"}));

  const texts = root => {
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT), all = [];
    while (walker.nextNode()) {
      const node = walker.currentNode, parent = node.parentElement;
      if (node.data.trim() && seen(parent) && !parent.closest("script, style, title, desc")) all.push(node);
    }
    return all;
  };

  // Whatever reaches over the window's right edge, without a box of its own that scrolls.
  const tooWide = () => {
    const width = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= width) return [];
    const scrolls = e => ["auto", "scroll", "hidden", "clip"].includes(getComputedStyle(e).overflowX);
    const holder = e => getComputedStyle(e).position === "absolute" ? e.offsetParent : e.parentElement;
    const inBox = e => { for (let p = holder(e); p; p = p.parentElement) if (scrolls(p)) return true; return false; };
    return [`the page is ${document.documentElement.scrollWidth} wide, the window ${width}`,
      ...[...document.body.querySelectorAll("*")]
        .filter(e => e.getBoundingClientRect().right > width + 1 && !inBox(e)).slice(0, 5)
        .map(e => `${e.tagName.toLowerCase()}.${e.getAttribute("class")} ${box(e.getBoundingClientRect())}`)];
  };

  // A fraction of a line's height is the space between lines, in which boxes may overlap and letters do not.
  const inner = (r, by) => ({left: r.left + 1, right: r.right - 1, top: r.top + by * r.height, bottom: r.bottom - by * r.height});
  const overlap = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;

  // Pairs of texts that lie on each other: sorted by their tops, each is held against those that begin above its end.
  const pairs = texts => {
    const found = [];
    texts.sort((a, b) => a.box.top - b.box.top);
    texts.forEach((a, n) => {
      for (let m = n + 1; m < texts.length && texts[m].box.top < a.box.bottom; m++)
        if (a.of !== texts[m].of && overlap(a.box, texts[m].box))
          found.push(`${words(a.text)} ${box(a.box)} and ${words(texts[m].text)} ${box(texts[m].box)}`);
    });
    return found;
  };

  const drawings = () => [...document.querySelectorAll("svg")].filter(seen);
  const named = svg => svg.querySelector("title")?.textContent ?? svg.closest("[aria-label]")?.getAttribute("aria-label") ?? "";
  const labels = svg => [...svg.querySelectorAll("text")].filter(t => seen(t) && t.textContent.trim());

  const drawnOver = () => drawings().flatMap(svg => pairs(labels(svg)
    .map(t => ({of: t, text: t.textContent, box: inner(t.getBoundingClientRect(), .15)})))
    .map(line => `${named(svg)}: ${line}`));

  const outside = () => drawings().flatMap(svg => {
    const all = svg.getBoundingClientRect();
    return labels(svg).map(t => [t, t.getBoundingClientRect()])
      .filter(([, r]) => r.left < all.left - 1 || r.right > all.right + 1 || r.top < all.top - 1 || r.bottom > all.bottom + 1)
      .map(([t, r]) => `${named(svg)}: ${words(t.textContent)} ${box(r)} lies outside of ${box(all)}`);
  });

  // The height of letters on the screen, after the drawing was scaled to its place.
  const tooSmall = least => drawings().flatMap(svg => labels(svg)
    .map(t => [t, parseFloat(getComputedStyle(t).fontSize) * Math.hypot(t.getScreenCTM().a, t.getScreenCTM().b)])
    .filter(([, size]) => size < least)
    .map(([t, size]) => `${named(svg)}: ${words(t.textContent)} is ${size.toFixed(1)} pixels high`));

  const writtenOver = () => {
    const range = document.createRange();
    return pairs(texts(document.body).filter(node => !node.parentElement.closest("svg")).flatMap(node => {
      range.selectNodeContents(node);
      return [...range.getClientRects()].filter(r => r.width > 2 && r.height > 2)
        .map(r => ({of: node, text: node.data, box: inner(r, .25)}));
    }));
  };

  // WCAG's contrast of each text against what lies below its middle. axe looks at no text of a drawing, and at none
  // above a gradient.
  const channel = v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
  const rgba = color => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = "transparent"; canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].map(v => v / 255);
  };
  const over = ([r, g, b, a], ground) => [r, g, b].map((v, n) => a * v + (1 - a) * ground[n]);
  const luminance = c => c.map(channel).reduce((sum, v, n) => sum + v * [.2126, .7152, .0722][n], 0);
  const contrast = (a, b) => { const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p); return (x + .05) / (y + .05); };
  const opacity = e => e ? +getComputedStyle(e).opacity * opacity(e.parentElement) : 1;
  const drawn = e => Boolean(e.ownerSVGElement);
  const color = (e, name) => {
    const style = getComputedStyle(e), [r, g, b, a] = rgba(style[name]);
    return [r, g, b, a * (drawn(e) ? +style.fillOpacity : 1) * opacity(e)];
  };
  const ground = (x, y) => document.elementsFromPoint(x, y).filter(e => !(drawn(e) && e.closest("text")))
    .map(e => color(e, drawn(e) ? "fill" : "backgroundColor")).reverse().reduce((below, c) => over(c, below), [1, 1, 1]);
  const large = style => parseFloat(style.fontSize) >= (+style.fontWeight >= 700 ? 18.66 : 24);
  const pale = (least, leastOfLarge) => {
    const range = document.createRange(), found = [];
    for (const node of texts(document.body)) {
      const parent = node.parentElement, style = getComputedStyle(parent);
      range.selectNodeContents(node);
      parent.scrollIntoView({block: "center", inline: "center", behavior: "instant"});
      const r = drawn(parent) ? parent.getBoundingClientRect() : range.getClientRects()[0];
      if (!r || r.width < 2 || r.height < 2) continue;
      const below = ground((r.left + r.right) / 2, (r.top + r.bottom) / 2);
      const ratio = contrast(over(color(parent, drawn(parent) ? "fill" : "color"), below), below);
      if (ratio < (large(style) ? leastOfLarge : least)) found.push(`${words(node.data)} has a contrast of ${ratio.toFixed(2)}`);
    }
    return found;
  };

  // axe's own rule, over the whole page but the drawings: [what it took for good, its findings].
  const axe = async () => {
    const result = await window.axe.run({exclude: [["svg"]]}, {runOnly: ["color-contrast"]});
    const nodes = result.violations.flatMap(rule => rule.nodes);
    return [result.passes.flatMap(rule => rule.nodes).length, nodes.map(n => `${n.target}: ${n.failureSummary}`)];
  };
  return {tooWide, drawnOver, outside, tooSmall, writtenOver, pale, axe};
})()
