// A page that is opened from a directory may start no worker, and the theme's search is one. Here it runs in a hidden frame; the theme
// loads the index as a script then. The theme knows the class by its name, and takes this file for its own because of its name.
if (location.protocol === "file:") {
  window.IFrameWorker = class IFrameWorker extends EventTarget {
    constructor(address) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      this.ready = new Promise((resolve) => {
        const page = inside.document;
        page.open();
        page.write("<!doctype html><body></body>");
        page.close();
        inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
        inside.importScripts = (...addresses) => Promise.all(addresses.map((each) => IFrameWorker.load(page, each)));
        IFrameWorker.load(page, new URL(address, location.href).href).then(resolve);
      });
    }

    static load(page, address) {
      return new Promise((resolve, reject) => {
        const script = page.createElement("script");
        script.src = address;
        script.onload = resolve;
        script.onerror = () => reject(new Error(`cannot load ${address}`));
        page.body.append(script);
      });
    }

    postMessage(data) {
      this.ready.then(() => {
        const inside = this.frame.contentWindow;
        inside.dispatchEvent(new inside.MessageEvent("message", { data }));
      });
    }

    terminate() {
      this.frame.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
