// Search from files: browsers start no Worker for a page that was opened from a disk. A hidden frame runs the same
// script there. The name of this file makes Material's offline plugin load it instead of one from another server.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = document.body.appendChild(document.createElement("iframe"));
      frame.hidden = true;
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.deliver(this, data);
      this.inside.importScripts = (...urls) =>
        urls.reduce((done, next) => done.then(() => this.load(next)), Promise.resolve());
      this.load(url).then(() => {
        for (const data of this.waiting) this.deliver(this.inside, data);
        this.waiting = null;
      });
    }

    load(url) {
      return new Promise((resolve, reject) => {
        const script = this.inside.document.createElement("script");
        Object.assign(script, { src: new URL(url, document.baseURI).href, onload: resolve, onerror: reject });
        this.inside.document.body.append(script);
      });
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.deliver(this.inside, data);
    }

    deliver(target, data) {
      setTimeout(() => {
        const message = new MessageEvent("message", { data });
        target.dispatchEvent(message);
        if (target === this && this.onmessage) this.onmessage(message);
      });
    }

    terminate() {
      this.inside.frameElement.remove();
    }
  };
}
