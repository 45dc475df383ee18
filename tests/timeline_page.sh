#!/bin/sh
# The page of build/timeline in a browser: drawn, moved, read with mouse and keys, light and dark.
#   sh tests/timeline_page.sh BUILD [SCREENSHOTS]    pictures of every page into that directory
build=$1 pictures=$2
scratch=$build/tests/timeline_page.tmp
passed=0 failed=0

for browser in chromium chromium-browser google-chrome ''; do
    command -v "$browser" >/dev/null 2>&1 && break
done
if [ -z "$browser" ]; then
    echo "skipped timeline_page: no chromium"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
mkdir -p "$scratch" ${pictures:+"$pictures"}
scratch=$(cd "$scratch" && pwd)

# What a reader does, as a script behind the page's own; it leaves what is wrong in the document.
cat >"$scratch/reader.js" <<'SCRIPT'
const wrong = [];
const want = (ok, what) => ok || wrong.push(what);
addEventListener('error', (event) => want(false, event.message));
addEventListener('securitypolicyviolation', (event) => want(false, 'asks for ' + event.blockedURI));
Element.prototype.setPointerCapture = () => {};
const at = (x, y) => ({ clientX: x, clientY: y, bubbles: true, cancelable: true, pointerId: 1 });
const send = (event) => { $('view').dispatchEvent(event); draw(); };
const key = (name) => send(new KeyboardEvent('keydown', { key: name, cancelable: true }));
const text = (id) => $(id).textContent;

function paper(width, height) {
  const canvas = document.createElement('canvas');
  canvas.width = width;
  canvas.height = height;
  return canvas.getContext('2d', { willReadFrequently: true });
}

function luminance(name) {
  const c = paper(1, 1);
  c.fillStyle = name.trim();
  c.fillRect(0, 0, 1, 1);
  const pixel = c.getImageData(0, 0, 1, 1).data;
  return [0.2126, 0.7152, 0.0722].reduce((sum, weight, i) => {
    const v = pixel[i] / 255;
    return sum + weight * (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  }, 0);
}

function contrast(a, b) {
  const l = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (l[1] + 0.05) / (l[0] + 0.05);
}

function colourful(canvas) {
  const c = paper(canvas.width, canvas.height);
  c.drawImage(canvas, 0, 0);
  const pixels = c.getImageData(0, 0, canvas.width, canvas.height).data;
  return new Set(new Uint32Array(pixels.buffer)).size;
}

function read() {
  const whole = text('window'), names = panels.map((panel) => panel.run.controller).join();
  want(names === 'in-order,static,ping-pong,dcs', 'panels: ' + names);
  for (const panel of panels) {
    want(+panel.element.dataset.boxes > 3, panel.run.controller + ' is empty');
    want(colourful(panel.canvas) > 5, panel.run.controller + ' has no colours');
    want(panel.run.cycles === panel.run.breakdown_ck.reduce((a, b) => a + b, 0),
      panel.run.controller + ': the bar is not the clocks');
  }
  want(document.querySelectorAll('.stack').length === 4, 'four bars');
  want(document.documentElement.scrollWidth <= innerWidth, 'wider than the window');
  data.spent.forEach((spent, i) => {
    const ratio = contrast(colour(i), letters(i));
    want(ratio >= 4.5, 'letters on ' + spent.name + ': contrast ' + ratio.toFixed(1));
  });
  want(contrast(css('--ink'), css('--paper')) > 10, 'text: contrast');
  want(contrast(css('--soft'), css('--ground')) > 4.5, 'soft text: contrast');

  const track = panels[3].run.tracks[0], box = panels[3].canvas.getBoundingClientRect();
  const x = box.left + GUTTER + (track.issue[0] + track.length[0] / 2) * scale(box.width);
  send(new PointerEvent('pointermove', at(x, box.top + ROW / 2)));
  want($('tip').style.display === 'block', 'no tooltip');
  want(/under dcs.*clock.* ns.*the same at clock: in-order \d/.test(text('tip')), text('tip'));
  want(document.querySelectorAll('.mark').length === 4, 'a command is marked in all four');
  send(new WheelEvent('wheel', { ...at(x, box.top + 9), deltaY: -400 }));
  want(text('window') !== whole, 'the wheel does not zoom');
  const middle = track.issue[0] + track.length[0] / 2;
  want(view.from <= middle && view.to >= middle, 'zoom loses its place');
  const zoomed = text('window');
  send(new PointerEvent('pointerdown', at(x + 300, box.top)));
  send(new PointerEvent('pointermove', at(x + 100, box.top)));
  send(new PointerEvent('pointerup', at(x + 100, box.top)));
  want(text('window') !== zoomed, 'dragging does not pan');
  send(new PointerEvent('pointerleave'));
  want($('tip').style.display === 'none', 'the tooltip stays');
  key('0');
  want(text('window') === whole, '0 does not show it all');
  for (const [name, other] of [['+', '-'], ['ArrowRight', 'ArrowLeft']]) {
    key('+');
    const before = text('window');
    key(name);
    want(text('window') !== before, name + ' does nothing');
    key(other);
    want(text('window') === before, other + ' does not undo it');
  }
  key('n'), key('n'), key('ArrowDown');
  want(/under in-order/.test(text('said')), 'keys name no command: ' + text('said'));
  for (let i = 0; i < 40; i++) key('ArrowDown');
  want(/under dcs/.test(text('said')), 'keys do not reach the last panel');
  key('Escape');
  want(!document.querySelector('.mark'), 'Escape leaves a mark');
  for (const id of ['more', 'right', 'less', 'left', 'all']) $(id).click();
  draw();
  want(text('window') === whole, 'the buttons do not come back');
}

read();
document.documentElement.dataset.read = wrong.join('; ') || 'well';
SCRIPT

# browse NAME OPTIONS..: loads a page, options first; what it says goes to NAME.log.
browse() {
    name=$1
    shift
    "$browser" --no-sandbox --headless=new --disable-gpu --hide-scrollbars --no-first-run \
        --user-data-dir="$scratch/profile" --enable-logging=stderr --window-size=1400,1000 \
        --virtual-time-budget=5000 "$@" >"$scratch/$name.dom" 2>"$scratch/$name.log"
}

# page NAME OPTIONS..: of build/timeline; judged in both schemes.
page() {
    name=$1
    shift
    "$build/timeline" "$@" --html "$scratch/$name.html" >/dev/null || failed=$((failed + 1))
    {
        sed '/<\/body>/,$d' "$scratch/$name.html"
        echo '<script>'
        cat "$scratch/reader.js"
        printf '</script>\n</body>\n</html>\n'
    } >"$scratch/read.html"
    for scheme in light dark; do
        setting=--blink-settings=preferredColorScheme=1
        [ $scheme = light ] || setting=--blink-settings=preferredColorScheme=0
        browse "$name" $setting --dump-dom "file://$scratch/read.html"
        said=$(sed -n 's/.*data-read="\([^"]*\)".*/\1/p' "$scratch/$name.dom" | head -n 1)
        if [ "$said" = well ] && ! grep -m 3 'CONSOLE' "$scratch/$name.log"; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
            echo "failed $name, $scheme: ${said:-nothing was read}"
        fi
        [ -z "$pictures" ] || browse "$name" $setting --screenshot="$pictures/$name-$scheme.png" \
            "file://$scratch/$name.html"
    done
}

page fig7 --example fig7
page gemv128 --example gemv128
page attention --tokens 1024
page long --tokens 40000
rm -rf "$scratch"
echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
