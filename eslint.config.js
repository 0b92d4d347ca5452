import js from "@eslint/js";

export default [
  { ignores: [".venv/", "node_modules/", "site/"] },
  js.configs.recommended,
  {
    files: ["src/**/*.js", "docs/**/*.js"],
    rules: {
      // TypeScript knows which names exist, and which are used.
      "no-undef": "off",
      "no-unused-vars": "off",
      "no-var": "error",
      "prefer-const": ["error", { destructuring: "all" }],
      eqeqeq: "error",
      curly: ["error", "multi-line"],
      "no-shadow": "error",
      "max-len": ["error", { code: 120 }],
    },
  },
];
